"""ChatTokens: convert requests to prompt ids and responses to answers."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from agentgym.core.components import Components
from agentgym.core.formats.base import Reading
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import Grammar, ModelCall, RequestedCall
from agentgym.engines.base import Allowed
from agentgym.engines.tokens.grammar import Grammars
from agentgym.engines.tokens.rendering import Prompt, Renderer
from agentgym.engines.tokens.responses import (
    GrowingContent,
    ResponseReader,
    requested_calls,
)
from agentgym.errors import ContextLengthError, EngineError
from agentgym.models.chat_template import ChatTemplate
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)


class ChatTokens:
    """Converts chat requests to prompt ids, and response ids to answers.

    Attributes:
        stop_ids: Tokens that end a response.
        context: Most tokens of prompt and response.
        grammars: Grammars of answers with a JSON schema or tool calls.
    """

    def __init__(
        self,
        name: str,
        tokenizer: PreTrainedTokenizerBase,
        template: ChatTemplate,
        stop_ids: frozenset[int],
        context: int,
        vocabulary: int = 0,
    ) -> None:
        self._name = name
        self.stop_ids = stop_ids
        self.context = context
        self._reader = ResponseReader(tokenizer, template.format, stop_ids)
        ends = [self._reader.detokenizer.piece(token) for token in sorted(stop_ids)]
        self._ends = ends
        self._renderer = Renderer(tokenizer, template, ends)
        self.grammars = Grammars(
            tokenizer,
            template.form,
            stop_ids,
            vocabulary or len(tokenizer),
            constrains_calls=template.constrains,
        )

    def prompt(self, request: ChatRequest) -> tuple[Prompt, int]:
        """Return a request's prompt, and the number of tokens left in the context.

        Raises:
            ContextLengthError: The prompt leaves no token for an answer.
            PromptError: The chat template refuses the messages.
        """
        prompt = self._renderer.render(request.messages, request.tools, request.session)
        room = self.context - len(prompt.ids)
        if room < 1:
            raise ContextLengthError(
                f"The prompt has {len(prompt.ids)} tokens and the context of "
                f"{self._name!r} holds {self.context}, so there is no room for an "
                "answer. Shorten the messages or the tools' results."
            )
        return prompt, room

    def check_ends(self, *, imitates: bool) -> None:
        """Check that the chat template ends answers with one of the end tokens.

        If it does not, log a warning: sampled answers may go on until ``max_tokens``.

        Raises:
            EngineError: ``imitates`` is true, and the template's answers, which a warm
                start would imitate, would have no end token.
        """
        written = self._renderer.unended()
        if written is None:
            return
        ends = ", ".join(repr(end) for end in self._ends)
        problem = (
            f"The chat template ends an answer of {self._name!r} with "
            f"{repr(written) if written else 'nothing'}, which is none of the tokens "
            f"that end its responses ({ends})"
        )
        advice = "give a template that does, with --set chat_template=FILE"
        if imitates:
            raise EngineError(f"{problem}, so that a warm start cannot work: {advice}.")
        logger.warning(
            "%s: answers may go on until max_tokens. Better %s.", problem, advice
        )

    def count(self, request: ChatRequest) -> int:
        """Return the number of tokens of a request's prompt."""
        return len(self._renderer.render(request.messages, request.tools).ids)

    def growing(self, prompt: Prompt) -> GrowingContent:
        """Return an object that converts the answer to text while it is sampled."""
        return GrowingContent(self._reader, prompt.end)

    def ends(self, prompt: Prompt, stop: Sequence[str]) -> Callable[[int], bool]:
        """Return a function of each sampled token: whether a text of ``stop`` stands.

        ``prompt`` is the prompt of the answer that is sampled.
        """
        content, text = self.growing(prompt), ""

        def ended(token: int) -> bool:
            nonlocal text
            text += content.add(token)
            return any(each in text for each in stop)

        return ended

    def result(
        self,
        request: ChatRequest,
        prompt: Prompt,
        ids: list[int],
        logprobs: list[float],
        *,
        reason: str,
        version: int,
        grammar: Grammar | None = None,
    ) -> ChatResult:
        """Convert sampled tokens to an answer; store the tokens for the next turn.

        Args:
            request: The request.
            prompt: Its prompt, from :meth:`prompt`.
            ids: The sampled tokens, with the end token.
            logprobs: The log-probability of each sampled token.
            reason: Why the response ended: ``stop`` or ``length``.
            version: Number of updates of the weights that sampled the tokens.
            grammar: The grammar that restricted the tokens; None without one.
        """
        reading = self._reader.read(ids, request.tools, prompt_end=prompt.end)
        content = reading.content if reading.content.strip() else None
        calls: list[RequestedCall] = []
        if request.tools:
            key = f"{request.session}/{request.seed}/{len(prompt.ids)}"
            calls = requested_calls(reading, key=key)
        elif content is None and reading.calls:
            # Servers answer with text if no tool can be called, and frameworks rely on
            # it; some also fail on an empty answer.
            content = reading.written
        self._remember(request, prompt, ids, _answer(content or "", calls), reading)
        return ChatResult(
            prompt_ids=prompt.ids,
            response_ids=ids,
            logprobs=logprobs,
            content=content,
            tool_calls=calls,
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            model_version=version,
            reasoning=reading.reasoning,
            grammar=grammar,
        )

    def written(
        self,
        request: ChatRequest,
        content: str,
        calls: Sequence[RequestedCall],
    ) -> ChatResult:
        """Convert a given answer to tokens, as if the policy had sampled it."""
        prompt, room = self.prompt(request)
        message = _answer(content, calls)
        ids = self._renderer.answer(request.messages, message)
        ends = [at for at, token in enumerate(ids) if token in self.stop_ids]
        if not ends:
            raise EngineError(
                f"The chat template of {self._name!r} ends an answer without a token "
                "that ends responses, so it cannot be imitated."
            )
        ids = ids[: ends[-1] + 1]
        if len(ids) > min(room, request.max_tokens):
            raise ContextLengthError(
                f"An answer of {len(ids)} tokens is to be imitated, and there is room "
                f"for {min(room, request.max_tokens)}. Raise max_tokens."
            )
        reading = self._reader.read(ids, request.tools, prompt_end=prompt.end)
        self._remember(request, prompt, ids, message, reading)
        return ChatResult(
            prompt_ids=prompt.ids,
            response_ids=ids,
            logprobs=[0.0] * len(ids),
            content=content or None,
            tool_calls=list(calls),
            finish_reason="tool_calls" if calls else "stop",
            model_version=0,
        )

    def label(self, call: ModelCall) -> list[Components] | None:
        """Return each token's components (e.g. tool selection); None if unknown."""
        return self._reader.label(
            call.prompt_ids,
            call.response_ids,
            call.tools,
            call.grammar.form if call.grammar else "",
        )

    def allowed(self, call: ModelCall) -> Sequence[Allowed] | None:
        """Return the tokens that a call's grammar allowed at each response position."""
        assert call.grammar is not None
        return self.grammars.replay(call.grammar, call.response_ids)

    def _remember(
        self,
        request: ChatRequest,
        prompt: Prompt,
        ids: list[int],
        answer: dict[str, Any],
        reading: Reading,
    ) -> None:
        """Store an answer's tokens for the session's next turn."""
        self._renderer.remember(
            request.session,
            request.messages,
            request.tools,
            prompt,
            answer,
            ids,
            reading=reading,
            end=self._reader.end(ids),
        )


def _answer(content: str, calls: Sequence[RequestedCall]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [call.to_openai() for call in calls]
    return message
