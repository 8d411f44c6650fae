"""From messages and tools to the prompt's token ids, the same ids turn after turn."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from agentgym.core.components import CLOSE_CALL, OPEN_CALL, OPEN_THINKING
from agentgym.core.openai import joined_text
from agentgym.core.tools import parse_arguments
from agentgym.errors import EngineError, ModelError, PromptError

_HEADS = 32
_SESSIONS = 4096
_TURNS = 4

Message = dict[str, Any]


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
    system: list[Message]  # one or none
    tools: list[Message]
    text: str
    bare: str  # rendered without the tools
    ids: list[int]  # of ``text``
    is_apart: dict[frozenset[tuple[str, bool]], bool] = field(default_factory=dict)
    """By the roles of a conversation (and whether they call tools): whether the
    template was found to keep the head apart from what follows."""


class Renderer:
    """Renders requests through a tokenizer's chat template, from any thread.

    Templates spend their time on the tools, which are the same in every request. So
    the head (system prompt and tools) is rendered once and kept, and the rest is
    rendered without tools and joined to it. That this gives the template's own text
    is checked for each kind of conversation when it first occurs; where it does not,
    everything is rendered each time.

    A call's arguments come as text, as the policy wrote them. A template that would
    not write that text as it is, so that the policy would read another call than it
    made, is given the object that the text holds. Content in parts is joined to one
    text, as many templates leave out any other.

    Attributes:
        begins_reasoning: Whether prompts end in an open ``<think>``.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._heads: list[_Head] = []
        self._sessions: OrderedDict[str, list[tuple[str, list[int]]]] = OrderedDict()
        self._lock = threading.Lock()
        arguments = '{"probe": "value"}'
        probe = _probe(arguments)
        self._wants_objects = arguments not in self._tried(probe)
        self.begins_reasoning = self._tried(probe[:2]).rstrip().endswith(OPEN_THINKING)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Message], session: str = ""
    ) -> Prompt:
        """Return the prompt of a request, which may continue a turn of its session.

        Raises:
            EngineError: The chat template refuses the messages, or one holds
                something other than text.
        """
        with self._lock:
            listed, offered = list(map(self._prepared, messages)), list(tools)
            text, head = self._text(listed, offered)
            turns = [("", []) if head is None else (head.text, head.ids)]
            turns += self._sessions.get(session, [])
            known = [turn for turn in turns if text.startswith(turn[0])]
            said, ids = max(known, key=lambda turn: len(turn[0]))
            ids = ids + self._encode(text[len(said) :])
            return Prompt(text, ids, head=0 if head is None else len(head.ids))

    def answer(self, messages: Sequence[Message], message: Message) -> list[int]:
        """Return the tokens in which the template writes an answer to ``messages``.

        What ends the answer is among them, and may be followed by others.

        Raises:
            EngineError: The template refuses it, or writes what came before otherwise.
        """
        with self._lock:
            listed = list(map(self._prepared, messages))
            before = _rendered(self._tokenizer, listed, [])
            answered = [*listed, self._prepared(message)]
            whole = _rendered(self._tokenizer, answered, [], prompt=False)
            if not whole.startswith(before):
                raise EngineError(
                    "The chat template writes a conversation otherwise once it is "
                    "answered, so there is no telling which tokens are the answer's."
                )
            return self._encode(whole[len(before) :])

    def remember(self, session: str, prompt: Prompt, ids: list[int], text: str) -> None:
        """Keep a response's exact tokens for the next turn of its session."""
        if not session:
            return
        with self._lock:
            turns = self._sessions.pop(session, [])
            turns.append((prompt.text + text, prompt.ids + ids))
            self._sessions[session] = turns[-_TURNS:]
            while len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)

    def _prepared(self, message: Message) -> Message:
        """Return a message in the form that the template takes."""
        if self._wants_objects and message.get("tool_calls"):
            calls = [_with_object(call) for call in message["tool_calls"]]
            message = {**message, "tool_calls": calls}
        if isinstance(message.get("content"), list):
            try:
                message = {**message, "content": joined_text(message["content"])}
            except ValueError as error:
                raise PromptError(
                    f"In a {message.get('role')!r} message {error}; the policy reads "
                    "only text."
                ) from error
        return message

    def _text(
        self, messages: list[Message], tools: list[Message]
    ) -> tuple[str, _Head | None]:
        """Return the whole text, and its head if the template keeps it apart."""
        head = self._find_head(messages, tools)
        kind = frozenset((m["role"], bool(m.get("tool_calls"))) for m in messages)
        if head is None or head.is_apart.get(kind) is False:
            return _rendered(self._tokenizer, messages, tools), None
        rest = _rendered(self._tokenizer, messages, []).removeprefix(head.bare)
        if kind not in head.is_apart:
            whole = _rendered(self._tokenizer, messages, tools)
            head.is_apart[kind] = whole == head.text + rest and (
                self._encode(whole) == head.ids + self._encode(rest)
            )
            if not head.is_apart[kind]:
                return whole, None
        return head.text + rest, head

    def _find_head(self, messages: list[Message], tools: list[Message]) -> _Head | None:
        system = messages[:1] if messages and messages[0]["role"] == "system" else []
        for head in self._heads:
            if head.tools == tools and head.system == system:
                return head
        if not tools and not system:
            return None
        try:
            text = _rendered(self._tokenizer, system, tools, prompt=False)
            bare = _rendered(self._tokenizer, system, [], prompt=False)
        except EngineError:  # the template wants a user message before anything
            return None
        head = _Head(system, tools, text, bare, self._encode(text))
        self._heads = [head, *self._heads][:_HEADS]
        return head

    def _tried(self, messages: list[Message]) -> str:
        """Return what the template writes, nothing if it refuses."""
        try:
            return _rendered(self._tokenizer, messages, [])
        except EngineError:
            return ""

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        assert isinstance(ids, list)
        return ids


def check_template(model: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a chat template that cannot show tools, or writes calls in another form.

    Raises:
        ModelError: Says which.
    """
    advice = "Use a model of the Qwen2.5 or Qwen3 families, or --model nano."
    if tokenizer.chat_template is None:
        raise ModelError(f"The model {model!r} has no chat template. {advice}")
    function = {
        "name": "probe_tool",
        "description": "Probe.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    tool = {"type": "function", "function": function}
    try:
        written = _rendered(tokenizer, _probe({"a": "probe_value"}), [tool])
    except EngineError as error:
        raise ModelError(
            f"The chat template of {model!r} cannot render a tool call: "
            f"{error.__cause__}. {advice}"
        ) from error
    head, _, call = written.partition("probe_value")
    if head.count("probe_tool") < 2:
        raise ModelError(
            f"The chat template of {model!r} leaves out tools or tool calls. {advice}"
        )
    if OPEN_CALL not in head or CLOSE_CALL not in call:
        raise ModelError(
            f"The chat template of {model!r} does not write tool calls in Hermes form "
            f"({OPEN_CALL}…{CLOSE_CALL}). {advice}"
        )


def _rendered(
    tokenizer: PreTrainedTokenizerBase,
    messages: list[Message],
    tools: list[Message],
    *,
    prompt: bool = True,
) -> str:
    try:
        text = tokenizer.apply_chat_template(
            messages,
            tools=list[dict[Any, Any] | Callable[..., Any]](tools) or None,
            tokenize=False,
            add_generation_prompt=prompt,
        )
    except Exception as error:  # templates raise what they like
        raise PromptError(
            f"The chat template cannot render the messages: {error}"
        ) from error
    assert isinstance(text, str)
    return text


def _probe(arguments: str | dict[str, Any]) -> list[Message]:
    function = {"name": "probe_tool", "arguments": arguments}
    call = {"id": "call_00000", "type": "function", "function": function}
    return [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_00000", "content": "r"},
    ]


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with the object that its arguments' text holds, if it does."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    parsed = parse_arguments(function["arguments"])
    if parsed is None:
        return call
    return {**call, "function": {**function, "arguments": parsed}}
