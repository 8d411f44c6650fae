"""Record and read a person's decisions on an agent's tool calls.

LangChain's ``HumanInTheLoopMiddleware`` interrupts the agent with ``action_requests``,
and expects one of these ``decisions`` on each: ``approve``, ``edit`` with an
``edited_action``, ``reject``, or ``respond`` with the tool's answer. With
``interrupt_mode="per_call"``, it interrupts for one call, an object with ``name`` and
``args``, and expects one decision.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentgym.errors import UsageError
from agentgym.plugins.logs.message import (
    LoggedCall,
    LoggedMessage,
    Result,
    read_messages,
    shown,
)
from agentgym.plugins.logs.trace import Trace

_APPROVE, _EDIT, _REJECT, _RESPOND = "approve", "edit", "reject", "respond"
_KINDS = (_APPROVE, _EDIT, _REJECT, _RESPOND)


def record_review(
    file: str | Path,
    messages: Sequence[Any],
    request: Any,
    response: Mapping[str, Any],
) -> None:
    """Append a person's decisions on tool calls to a file, from which tasks are made.

    Call this function before you resume an interrupted agent::

        [asked] = state.interrupts
        record_review("reviews.jsonl", state.values["messages"], asked, response)
        graph.invoke(Command(resume=response), config)

    Then ``agentgym tasks from-reviews reviews.jsonl`` creates a tasks file.

    Args:
        file: JSON Lines file; it is created if it does not exist.
        messages: The conversation so far, as LangChain messages or dictionaries.
        request: The interrupt of LangChain's human-in-the-loop middleware, or the value
            of the interrupt.
        response: The response to the interrupt: ``{"decisions": […]}``, or one
            decision.

    Raises:
        UsageError: The request has no tool calls, or the decisions do not match them.
    """
    asked = getattr(request, "value", request)
    line = {
        "messages": [_plain(message) for message in messages],
        "action_requests": _requests(asked),
        "decisions": response.get("decisions", [dict(response)]),
    }
    try:
        list(_pairs(line))
    except ValueError as error:
        raise UsageError(f"This review cannot be recorded: {error}.") from None
    with Path(file).open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def is_review(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a review that :func:`record_review` wrote."""
    return "decisions" in value and "action_requests" in value


@dataclass
class _Request:
    """All reviews of the tool calls for one request of a user.

    Attributes:
        conversations: The conversation of each review.
        answers: The answers that the person gave instead of a tool, by the key of the
            call.
        decisions: Number of decisions by kind, e.g. ``edit``.
    """

    conversations: list[list[LoggedMessage]] = field(default_factory=list)
    decided: dict[str, LoggedCall | None] = field(default_factory=dict)
    """The right call, by the key of the agent's call; None if it was rejected."""
    answers: dict[str, str] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    decisions: Counter[str] = field(default_factory=Counter)


class Reviews:
    """Collects a person's decisions on an agent's tool calls, by the user's request."""

    def __init__(self) -> None:
        self._by_request: dict[str, _Request] = {}

    def add(self, value: Mapping[str, Any]) -> None:
        """Add a review."""
        messages = read_messages(value.get("messages") or [])
        users = [message for message in messages if message.role == "user"]
        pairs = list(_pairs(value))
        about = self._by_request.setdefault(users[0].text if users else "", _Request())
        known = {call.key for message in messages for call in message.calls}
        more = [call for call, _ in pairs if call.key not in known]
        if more:
            messages = [*messages, LoggedMessage("assistant", "", tuple(more))]
        about.conversations.append(messages)
        for call, decision in pairs:
            kind = decision["type"]
            about.decisions[kind] += 1
            right: LoggedCall | None = call
            if kind == _EDIT:
                right = _call(decision["edited_action"])
            elif kind == _REJECT:
                right = None
                about.rejected.add(call.name)
            elif kind == _RESPOND:
                about.answers[call.key] = str(decision.get("message", ""))
            about.decided[call.key] = right

    def traces(self) -> list[Trace]:
        """Return one trace for each request, in the order in which they were added."""
        return [_trace(about) for about in self._by_request.values()]


def _trace(about: _Request) -> Trace:
    answers = [Result(key, text, failed=False) for key, text in about.answers.items()]
    conversations = [
        [*(_reviewed(message, about) for message in messages)]
        for messages in about.conversations
    ]
    if answers:
        conversations[-1].append(LoggedMessage("tool", "", results=tuple(answers)))
    return Trace(
        conversations, rejected=frozenset(about.rejected), decisions=about.decisions
    )


def _reviewed(message: LoggedMessage, about: _Request) -> LoggedMessage:
    calls = []
    for call in message.calls:
        right = about.decided.get(call.key, call)
        if call.key in about.answers:
            right = replace(call, id=call.key)  # the id of the person's answer
        if right is not None:
            calls.append(right)
    return replace(message, calls=tuple(calls))


def _pairs(value: Mapping[str, Any]) -> Iterator[tuple[LoggedCall, Mapping[str, Any]]]:
    """Yield each requested call with its decision."""
    asked, decisions = value["action_requests"], value["decisions"]
    if not isinstance(asked, list) or not isinstance(decisions, list) or not asked:
        raise ValueError("action_requests and decisions are not lists of tool calls")
    if len(asked) != len(decisions):
        raise ValueError(f"{len(asked)} calls were asked for, {len(decisions)} decided")
    for each, decision in zip(asked, decisions, strict=True):
        kind = decision.get("type") if isinstance(decision, dict) else None
        if kind not in _KINDS:
            raise ValueError(
                f"the decision {shown(decision)} is none of {', '.join(_KINDS)}"
            )
        if kind == _EDIT:
            _call(decision.get("edited_action"))
        yield _call(each), decision


def _call(value: Any) -> LoggedCall:
    found = value if isinstance(value, dict) else {}
    name, args = found.get("name"), found.get("args", found.get("arguments"))
    if not isinstance(name, str) or not name or not isinstance(args, dict):
        raise ValueError(f"{shown(value)} has no name and args of a tool call")
    return LoggedCall("", name, args)


def _requests(asked: Any) -> Any:
    if isinstance(asked, Mapping) and "action_requests" in asked:
        return asked["action_requests"]
    if isinstance(asked, Mapping) and "name" in asked:
        return [{"name": asked["name"], "args": asked.get("args")}]
    return asked


def _plain(message: Any) -> Any:
    dump = getattr(message, "model_dump", None)
    return message if dump is None else dump(mode="json")
