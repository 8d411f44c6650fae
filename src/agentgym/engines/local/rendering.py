"""From messages and tools to the prompt's token ids, the same ids turn after turn."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from agentgym.core.components import OPEN_THINKING, is_unended_reasoning
from agentgym.core.openai import joined_text
from agentgym.core.tools import parse_arguments
from agentgym.engines.local.probe_chat import probe_chat
from agentgym.errors import EngineError

_HEADS = 32
_SESSIONS = 4096
_TURNS = 4
_ARGUMENTS = '{"probe": "value"}'

_Shape = frozenset[tuple[str, bool]]


@dataclass(frozen=True)
class Prompt:
    """A rendered request.

    Attributes:
        text: What the chat template wrote.
        ids: Its tokens. Where it continues an earlier turn of its session, that
            turn's tokens are the sampled ones, not a second tokenisation.
        head: How many of them are system prompt and tools.
    """

    text: str
    ids: list[int]
    head: int


@dataclass
class _Head:
    """A system prompt with tools, rendered once.

    Attributes:
        messages: The system message, if there is one.
        tools: The tools.
        text: Both, rendered.
        bare: The system message, rendered without the tools.
        ids: Of ``text``.
        checked: Shapes of conversations for which the head was found to be apart
            from what follows; True, or False where the template mixes the two.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    text: str
    bare: str
    ids: list[int]
    checked: dict[_Shape, bool] = field(default_factory=dict)


class Renderer:
    """Renders requests through a tokenizer's chat template.

    Templates spend their time on the tools, which are the same in every request. So
    the head (system prompt and tools) is rendered once and kept, and the rest is
    rendered without tools and joined to it. That this gives the template's own text
    is checked for each kind of conversation when it first occurs; where it does not,
    everything is rendered each time.

    A call's arguments come as text, as the policy wrote them. A template that would
    not write that text as it is, so that the policy would read another call than it
    made, is given the object that the text holds. Content in parts is joined to one
    text, as many templates leave out any other.

    Safe to call from several threads.

    Attributes:
        begins_reasoning: Whether prompts end in an open ``<think>``.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._heads: list[_Head] = []
        self._sessions: OrderedDict[str, list[tuple[str, list[int]]]] = OrderedDict()
        self._lock = threading.Lock()
        self._wants_objects = not self._writes_arguments_as_they_are()
        self.begins_reasoning = self._opens_thinking()

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        session: str = "",
    ) -> Prompt:
        """Return the prompt of a request.

        Args:
            messages: OpenAI-shaped.
            tools: OpenAI-shaped.
            session: Whose earlier turns may be continued.

        Raises:
            EngineError: The chat template refuses the messages, or one holds
                something other than text.
        """
        with self._lock:
            listed, offered = list(map(self._prepared, messages)), list(tools)
            text, head = self._text(listed, offered)
            known, ids = self._longest_known(session, text)
            if not known and head is not None:
                known, ids = head.text, head.ids
            return Prompt(
                text=text,
                ids=ids + self._encode(text[len(known) :]),
                head=0 if head is None else len(head.ids),
            )

    def remember(self, session: str, prompt: Prompt, response: list[int]) -> None:
        """Keep a turn's exact tokens for the next turn of its session."""
        if not session:
            return
        text = prompt.text + self.decode(response)
        with self._lock:
            turns = self._sessions.pop(session, [])
            self._sessions[session] = [*turns, (text, prompt.ids + response)][-_TURNS:]
            while len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)

    def decode(self, ids: list[int]) -> str:
        """Return the exact text of ``ids``, special tokens included."""
        text = self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def _writes_arguments_as_they_are(self) -> bool:
        try:
            return _ARGUMENTS in self._template(probe_chat(_ARGUMENTS), [])
        except EngineError:  # it takes no text there
            return False

    def _opens_thinking(self) -> bool:
        try:
            asked = probe_chat(_ARGUMENTS)[:2]
            return self._template(asked, []).rstrip().endswith(OPEN_THINKING)
        except EngineError:  # so it will of every request
            return False

    def _prepared(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message in the form that the template takes."""
        if self._wants_objects and message.get("tool_calls"):
            calls = [_with_object(call) for call in message["tool_calls"]]
            message = {**message, "tool_calls": calls}
        if isinstance(message.get("content"), list):
            message = {**message, "content": _joined(message)}
        return message

    def _longest_known(self, session: str, text: str) -> tuple[str, list[int]]:
        turns = self._sessions.get(session, [])
        known = [turn for turn in turns if text.startswith(turn[0])]
        return max(known, key=lambda turn: len(turn[0]), default=("", []))

    def _text(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
    ) -> tuple[str, _Head | None]:
        """Return the whole text, and its head if the template keeps it apart."""
        head = self._find_head(messages, tools)
        if head is None:
            return self._template(messages, tools), None
        shape = frozenset((m["role"], bool(m.get("tool_calls"))) for m in messages)
        apart = head.checked.get(shape)
        if apart is False:
            return self._template(messages, tools), None
        rest = self._template(messages, []).removeprefix(head.bare)
        if apart is None:
            whole = self._template(messages, tools)
            apart = whole == head.text + rest and (
                self._encode(whole) == head.ids + self._encode(rest)
            )
            head.checked[shape] = apart
            if not apart:
                return whole, None
        return head.text + rest, head

    def _find_head(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
    ) -> _Head | None:
        system = messages[:1] if messages and messages[0]["role"] == "system" else []
        for head in self._heads:
            if head.tools == tools and head.messages == system:
                return head
        if not tools and not system:
            return None
        try:
            text = self._template(system, tools, prompt=False)
            bare = self._template(system, [], prompt=False)
        except EngineError:  # the template wants a user message before anything
            return None
        head = _Head(system, tools, text, bare, self._encode(text))
        self._heads = [head, *self._heads][:_HEADS]
        return head

    def _template(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        *,
        prompt: bool = True,
    ) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                messages,
                tools=list[dict[Any, Any] | Callable[..., Any]](tools) or None,
                tokenize=False,
                add_generation_prompt=prompt,
            )
        except Exception as error:  # templates raise what they like
            raise EngineError(
                f"The chat template cannot render the messages: {error}"
            ) from error
        assert isinstance(text, str)
        return text

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        assert isinstance(ids, list)
        return ids


def _joined(message: dict[str, Any]) -> str:
    try:
        return joined_text(message["content"])
    except ValueError as error:
        raise EngineError(
            f"In a {message.get('role')!r} message {error}; the policy reads only text."
        ) from error


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with the object that its arguments' text holds, if it does."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    parsed = parse_arguments(function["arguments"])
    if parsed is None:
        return call
    return {**call, "function": {**function, "arguments": parsed}}


class Detokenizer:
    """The text of each token of a response, so that the pieces join to the whole.

    A token may hold part of a character; its piece is then empty and the token that
    completes the character has all of it.

    Args:
        tokenizer: Of the policy.
        thinking: Whether its prompts end in an open ``<think>``.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, thinking: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._thinking = thinking
        self._single: dict[int, str] = {}

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """Return one piece per token, None if they cannot be told or labelled.

        That is: they do not add up to the text, or it is reasoning that the prompt
        began and the response never ended, which the text alone does not show.
        """
        whole = self._decode(list(ids))
        if self._thinking and is_unended_reasoning(whole):
            return None
        pieces = [self._piece(token) for token in ids]
        if "".join(pieces) == whole:
            return pieces
        pieces, growing = [], self.grow()
        for count, token in enumerate(ids, 1):
            piece = growing.add(token, last=count == len(ids))
            if piece is None:
                return None
            pieces.append(piece)
        return pieces if "".join(pieces) == whole else None

    def grow(self) -> "GrowingText":
        """Return the text, still empty, of a response whose tokens are to come."""
        return GrowingText(self._decode)

    def _piece(self, token: int) -> str:
        if token not in self._single:
            self._single[token] = self._decode([token])
        return self._single[token]

    def _decode(self, ids: list[int]) -> str:
        text = self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text


class GrowingText:
    """The text of a response that comes token by token.

    Each token costs the same however many came before: it is decoded with no more of
    them than the last piece's, so that what depends on the neighbour (a space that
    only the first word of a text goes without) comes out as in the whole text.

    Args:
        decode: Returns the exact text of tokens.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._told = 0
        self._text = ""

    def add(self, token: int, *, last: bool = False) -> str | None:
        """Return what one more token adds: nothing while a character is unfinished.

        Args:
            token: The next one.
            last: None follows, so that nothing is waited for.

        Returns:
            The text, or None if the token changes what was returned before.
        """
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith("\ufffd") and not last:
            return ""
        if not text.startswith(self._text):
            return None
        piece = text[len(self._text) :]
        if piece:
            self._ids = self._ids[self._told :]
            self._text = self._decode(self._ids)
        self._told = len(self._ids)
        return piece
