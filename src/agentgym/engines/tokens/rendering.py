"""Renderer: convert messages and tools to the token ids of a prompt."""

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentgym.core.components import REASONING
from agentgym.core.formats.base import Reading
from agentgym.core.formats.detect import PREFIX, Message
from agentgym.core.tools import parse_arguments
from agentgym.errors import EngineError
from agentgym.models.chat_template import ChatTemplate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the number of leading items that two sequences share."""
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:  # fast, and the usual case
        return limit
    return next((i for i in range(limit) if first[i] != second[i]), limit)


_HEADS = 32
_SESSIONS = 4096
_TURNS = 4
_MARK = "the-answer-ends-here"


@dataclass(frozen=True)
class Prompt:
    """The prompt of a request.

    Attributes:
        ids: Token ids. If the request continues an earlier turn of its session, they
            begin with the exact tokens of that turn, as they were sampled.
        end: The last characters of the text, which show whether the prompt opens the
            reasoning.
        head: Number of tokens of system prompt and tools; 0 if not known.
    """

    ids: list[int]
    end: str
    head: int = 0


@dataclass
class _Head:
    system: list[Message]  # the system message, or an empty list
    tools: list[Message]
    text: str  # system message and tools, rendered
    bare: str  # the system message alone, rendered
    ids: list[int]  # token ids of ``text``
    is_apart: dict[frozenset[tuple[str, bool]], bool] = field(default_factory=dict)
    """For each kind of conversation, whether a prompt equals this head followed by the
    other messages, which are rendered without tools. A kind is a set of pairs: a role,
    and whether a message of this role calls tools."""


@dataclass(frozen=True)
class _Turn:
    """An answered request; a later request of the session may continue it."""

    said: tuple[Hashable, ...]  # the messages, the answer last
    tools: list[Message]
    answer: Message
    ids: list[int]
    end: str  # text of the answer's end token; empty if a limit cut the answer off
    reasons: bool
    head: int


class Renderer:
    """Renders requests with a chat template; any thread may call its methods.

    If a request continues a turn of its session, its prompt begins with the exact
    tokens that were seen and sampled in that turn. Only the new messages are rendered:
    the template writes the turn's answer with and without them, and the difference is
    appended. The whole request is rendered again if the template would drop the turn's
    reasoning, or writes the end of the answer differently.

    Templates spend most of their time on tools, which are the same in every request. So
    the head of a conversation (system prompt and tools) is rendered once and kept. The
    other messages are rendered without tools and appended. For the first conversation
    of each kind, the result is compared with the text of the whole template; if they
    differ, such conversations are always rendered as a whole.

    ``stop_texts`` are the texts of the tokens that end an answer.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        template: ChatTemplate,
        stop_texts: Sequence[str] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._stops = stop_texts
        self._ends = {*stop_texts, *template.format.end_marks}
        self._heads: list[_Head] = []
        self._sessions: OrderedDict[str, list[_Turn]] = OrderedDict()
        self._lock = threading.Lock()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Message], session: str = ""
    ) -> Prompt:
        """Return the prompt of a request, which may continue a turn of ``session``."""
        with self._lock:
            turns = self._sessions.get(session) if session else None
            if turns and (found := self._continued(turns, messages, tools)):
                return found
            listed = self._template.prepared_all(messages)
            text, head = self._text(listed, list(tools))
            if head is None:
                return Prompt(self._encode(text), text[-PREFIX:])
            ids = head.ids + self._encode(text[len(head.text) :])
            return Prompt(ids, text[-PREFIX:], head=len(head.ids))

    def answer(self, messages: Sequence[Message], message: Message) -> list[int]:
        """Return the tokens that the template writes for the answer ``message``.

        They include all tokens that it writes after the answer, such as its end token.

        Raises:
            EngineError: The template refuses the answer, or writes the earlier messages
                differently once the answer follows.
        """
        with self._lock:
            listed = self._template.prepared_all(messages)
            before = self._template.render(listed, [])
            answered = self._template.prepared_all([*messages, message])
            whole = self._template.render(answered, [], prompt=False)
            shared = common_prefix(before, whole)
            if before[shared:].strip():
                raise EngineError(
                    "The chat template writes a conversation in another way once it is "
                    "answered, so that the tokens of the answer cannot be found."
                )
            if shared == len(before):
                return self._encode(whole[shared:])
            # In a prompt, templates write an empty line after the mark that opens
            # reasoning. In an answer without reasoning, they close it at once.
            return self._encode(whole[shared:].lstrip())

    def unended(self) -> str | None:
        """Return the text that the template puts in place of an end token.

        An answer without a tool call is tested first, then one with a call. The result
        is None if the template puts an end token after both.
        """
        function = {"name": "f", "arguments": "{}"}
        call = {"id": "call00000", "type": "function", "function": function}
        for more in ({}, {"tool_calls": [call]}):
            answer = _marked(
                {"role": "assistant", "content": "", **more}, one_call=True
            )
            said = [{"role": "user", "content": "u"}, self._template.prepared(answer)]
            whole = self._template.render(said, [], prompt=False)
            _, mark, written = whole.partition(_MARK)
            if mark and not any(end in written for end in self._stops):
                return written
        return None

    def remember(
        self,
        session: str,
        messages: Sequence[Message],
        tools: Sequence[Message],
        prompt: Prompt,
        answer: Message,
        ids: list[int],
        *,
        reading: Reading,
        end: str,
    ) -> None:
        """Store a response's exact tokens for its session's next turn.

        Args:
            session: The session; if empty, nothing is stored.
            messages: The messages of the request.
            tools: The tools of the request.
            prompt: The request's prompt, from :meth:`render`.
            answer: The message that the agent gets.
            ids: The tokens of the response.
            reading: The parsed response.
            end: The text of the response's end token; empty if it has none.
        """
        if not session:
            return
        turn = _Turn(
            said=(*map(_key, messages), _key(answer)),
            tools=list(tools),
            answer=answer,
            ids=prompt.ids + ids,
            end=end,
            reasons=any(span.components == REASONING for span in reading.spans),
            head=prompt.head,
        )
        with self._lock:
            turns = self._sessions.pop(session, [])
            self._sessions[session] = [turn, *turns][:_TURNS]
            while len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)

    def _continued(
        self,
        turns: Sequence[_Turn],
        messages: Sequence[Message],
        tools: Sequence[Message],
    ) -> Prompt | None:
        """Return the prompt that continues one of the session's turns."""
        keys = tuple(map(_key, messages))
        for turn in sorted(turns, key=lambda turn: -len(turn.said)):
            count = len(turn.said)
            if count < len(keys) and keys[:count] == turn.said and turn.tools == tools:
                added = self._added(turn, messages[count:])
                if added is None:
                    return None
                ids = turn.ids + self._encode(added)
                return Prompt(ids, added[-PREFIX:], head=turn.head)
        return None

    def _added(self, turn: _Turn, new: Sequence[Message]) -> str | None:
        """Return the text that the template writes for new messages after a turn.

        The text begins after the turn's end token. To find its beginning, the answer's
        text is replaced by ``_MARK``: a template may write an answer differently once
        other messages follow. Returns None if the template does not write ``_MARK``, or
        drops the turn's reasoning.
        """
        asked: Message = {"role": "user", "content": "u"}
        answer = self._template.prepared(
            _marked(turn.answer, one_call=self._template.form.one_call)
        )
        later = self._template.prepared_all(new)
        speaks = any(message.get("role") == "user" for message in new)
        if turn.reasons and speaks and not self._template.keeps_reasoning:
            return None
        try:
            whole = self._template.render([asked, answer, *later], [])
            alone = self._template.render([asked, answer], [], prompt=False)
        except EngineError:
            return None
        at, last = whole.find(_MARK), alone.find(_MARK)
        if at < 0 or last < 0:
            return None
        found = [(whole.find(end, at), end) for end in self._ends if end]
        start, end = min((f for f in found if f[0] >= 0), default=(-1, ""))
        if start < 0 or not alone.startswith(whole[at:start], last):
            return None  # the end mark found is that of a later message
        return whole[start + len(end) :] if turn.end else whole[start:]

    def _text(
        self, messages: list[Message], tools: list[Message]
    ) -> tuple[str, _Head | None]:
        """Return the text of a prompt, and its head (system prompt and tools)."""
        head = self._find_head(messages, tools)
        kind = frozenset((m["role"], bool(m.get("tool_calls"))) for m in messages)
        if head is None or head.is_apart.get(kind) is False:
            return self._template.render(messages, tools), None
        rest = self._template.render(messages, []).removeprefix(head.bare)
        if kind not in head.is_apart:
            whole = self._template.render(messages, tools)
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
            text = self._template.render(system, tools, prompt=False)
            bare = self._template.render(system, [], prompt=False)
        except EngineError:  # the template requires a user message first
            return None
        head = _Head(system, tools, text, bare, self._encode(text))
        self._heads = [head, *self._heads][:_HEADS]
        return head

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        assert isinstance(ids, list)
        return ids


def _key(message: Message) -> Hashable:
    """Return a key to compare messages: it is equal if their meaning is the same.

    Frameworks send an answer back with small changes, e.g. arguments in another JSON
    style, an empty text instead of None, or extra fields.
    """
    calls = message.get("tool_calls") or ()
    return (
        message.get("role"),
        _text_of(message.get("content")),
        message.get("tool_call_id"),
        tuple(map(_call_key, calls)),
    )


def _text_of(content: Any) -> Hashable:
    if isinstance(content, list):
        return "".join(str(part.get("text", part)) for part in content)
    return content.strip() if isinstance(content, str) else ""


def _call_key(call: Any) -> Hashable:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return repr(call)
    given = function.get("arguments")
    parsed = parse_arguments(given) if isinstance(given, str) else given
    return function.get("name"), repr(given if parsed is None else parsed)


def _marked(answer: Message, *, one_call: bool) -> Message:
    """Replace an answer's text, or its last arguments, by the placeholder ``_MARK``.

    Names and ids of calls stay the same: templates match results to calls by them. With
    ``one_call``, the other calls are removed.
    """
    *calls, last = answer.get("tool_calls") or [None]
    if last is None:
        return {**answer, "content": _MARK}
    function = {**last["function"], "arguments": json.dumps({"k": _MARK})}
    kept = [] if one_call else calls
    return {**answer, "tool_calls": [*kept, {**last, "function": function}]}
