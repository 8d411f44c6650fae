"""Record and read a person's decisions on an agent's tool calls.

LangChain's ``HumanInTheLoopMiddleware`` interrupts the agent with ``action_requests``,
and expects one of these ``decisions`` on each: ``approve``, ``edit`` with an
``edited_action``, ``reject``, or ``respond`` with the tool's answer. With
``interrupt_mode="per_call"``, it interrupts for one call, an object with ``name`` and
``args``, and expects one decision.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class _Review:
    """The conversation before a review, and its decision on each requested call."""

    messages: list[LoggedMessage]
    pairs: list[tuple[LoggedCall, Mapping[str, Any]]]


def reviews_in(value: Mapping[str, Any], where: str) -> Iterator[tuple[str, _Review]]:
    """Yield a review, with the user's request that it is about."""
    messages = read_messages(value.get("messages") or [])
    users = [message for message in messages if message.role == "user"]
    pairs = list(_pairs(value))
    known = {call.key for message in messages for call in message.calls}
    more = [call for call, _ in pairs if call.key not in known]
    if more:
        messages = [*messages, LoggedMessage("assistant", "", tuple(more))]
    yield users[0].text if users else "", _Review(messages, pairs)


def trace_of_reviews(reviews: list[_Review], problems: list[str]) -> Trace:
    """Convert the reviews that are about one request to a `Trace`."""
    trace = Trace()
    decided: dict[str, LoggedCall | None] = {}
    answers: dict[str, Result] = {}
    for call, decision in (pair for review in reviews for pair in review.pairs):
        kind = decision["type"]
        trace.decisions[kind] += 1
        decided[call.key] = call
        if kind == _EDIT:
            decided[call.key] = _call(decision["edited_action"])
        elif kind == _REJECT:
            decided[call.key] = None
            trace.rejected.add(call.name)
        elif kind == _RESPOND:
            text = str(decision.get("message", ""))
            answers[call.key] = Result(call.key, text, failed=False)
    for key in answers:  # the call of an answer has the answer's id
        if (right := decided[key]) is not None:
            decided[key] = replace(right, id=key)
    trace.conversations = [
        [_reviewed(message, decided) for message in review.messages]
        for review in reviews
    ]
    if answers:
        said = LoggedMessage("tool", "", results=tuple(answers.values()))
        trace.conversations[-1].append(said)
    return trace


def _reviewed(
    message: LoggedMessage, decided: Mapping[str, LoggedCall | None]
) -> LoggedMessage:
    """Return a message with the right calls, which the person decided on."""
    right = [decided.get(call.key, call) for call in message.calls]
    return replace(message, calls=tuple(call for call in right if call is not None))


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
