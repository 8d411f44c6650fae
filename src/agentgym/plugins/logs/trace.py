"""Convert a trace (the recorded work of an agent on a request) to a task."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from agentgym.core.tools import ToolSpec
from agentgym.plugins.logs.message import LoggedCall, LoggedMessage, Result

_REJECTED = "User rejected the tool call for `"
_EDITED, _WITH = "Executed instead: ", " with arguments "
_RESPONSE = "Tool response:"
_NOTICE = 2_000
"""Most characters of a result that come before the notice of an edit."""


def is_rejected(answer: Result | None) -> bool:
    """Return whether a result says that a reviewer rejected its call."""
    return answer is not None and answer.text.lstrip().startswith(_REJECTED)


def edited(
    call: LoggedCall, answer: Result | None
) -> tuple[LoggedCall, Result | None] | None:
    """Return the call as a reviewer edited it, and the result of the edited call."""
    text = "" if answer is None else answer.text
    at = text.find(_EDITED, 0, _NOTICE)
    name, found, rest = text[at + len(_EDITED) :].partition(_WITH)
    if answer is None or at < 0 or not found or not name.strip():
        return None
    try:
        arguments, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if not isinstance(arguments, dict):
        return None
    said = rest[end:].removeprefix(".").lstrip().removeprefix(_RESPONSE).lstrip("\n")
    made = replace(call, name=name, arguments=arguments)
    return made, replace(answer, text=said) if said else None


_ALL_REJECTED = (
    "all its calls were rejected, so the right one is not known: write it yourself"
)


@dataclass(frozen=True)
class ToolRun:
    """A recorded run of a tool; ``answer`` is None if the log does not have it."""

    call: LoggedCall
    answer: Result | None


@dataclass
class Trace:
    """The recorded work of an agent, in a form that does not depend on the log format.

    Attributes:
        conversations: The messages of each model call (input and output), in order.
            A later call repeats the messages of earlier calls.
        asked: The user's request, for logs whose conversations do not have it.
        tools: Tools that the model was offered, in OpenAI's format; may be empty.
        decisions: Number of reviewers' decisions, by kind, e.g. ``edit``.
            :func:`read_task` adds decisions that it finds in results.
    """

    conversations: list[list[LoggedMessage]] = field(default_factory=list)
    runs: list[ToolRun] = field(default_factory=list)
    asked: str = ""
    tools: Sequence[Any] = ()
    rejected: set[str] = field(default_factory=set)
    decisions: Counter[str] = field(default_factory=Counter)


class LeftOutError(Exception):
    """A trace cannot become a task; the message says why."""


def read_task(
    trace: Trace, specs: Mapping[str, ToolSpec] | None, left_out: Counter[str]
) -> dict[str, Any]:
    """Convert a trace to a line of a tasks file, up to the user's second message."""
    own = _own_tools(trace) if specs is None else {}
    specs = specs or own or None
    request, calls = _first_turn(trace)
    if not request:
        raise LeftOutError("no request of a user is in it")
    if not calls and trace.rejected:
        raise LeftOutError(_ALL_REJECTED)
    unknown = _unknown_parts(trace)
    if not calls and unknown:
        raise LeftOutError(f"it has parts that are not known: {', '.join(unknown)}")
    if not calls:
        raise LeftOutError("no tool was called for the first request")
    left_out.update(f"a part that is not known: {kind}" for kind in unknown)
    answers = _answers(trace)
    by_call = _answers_in_order(trace)
    for run in trace.runs:
        if run.answer is not None:
            by_call.setdefault(run.call.key, []).append(run.answer)
    expect: list[dict[str, Any]] = []
    rejected = set(trace.rejected)
    for call in calls:
        answer = answers.get(call.id)
        again = by_call.get(call.key)
        if answer is None and again:
            answer = again.pop(0) if len(again) > 1 else again[0]
        if is_rejected(answer):
            trace.decisions["reject"] += 1
            rejected.add(call.name)
            continue
        if (changed := edited(call, answer)) is not None:
            trace.decisions["edit"] += 1
            call, answer = changed
        why = _problem(call, answer, specs)
        if why:
            left_out[why] += 1
            continue
        made = {"tool": call.name, "args": call.arguments}
        expect.append(made if answer is None else {**made, "answer": answer.text})
    if not expect and rejected:
        raise LeftOutError(_ALL_REJECTED)
    if not expect:
        raise LeftOutError("each call for the first request was left out")
    line: dict[str, Any] = {"instruction": request, "expect": expect}
    forbidden = rejected.difference(need["tool"] for need in expect)
    if forbidden := forbidden.intersection(specs or forbidden):
        line["forbid"] = sorted(forbidden)
    return {**line, "tools": [s.to_openai() for s in own.values()]} if own else line


def _own_tools(trace: Trace) -> dict[str, ToolSpec]:
    """Return the tools that the trace's model was offered, by name."""
    from agentgym.scenarios.schemas import spec_of_openai  # jsonschema imports slowly

    try:
        specs = [spec_of_openai(tool) for tool in trace.tools]
    except ValueError as error:
        raise LeftOutError(f"one of its tools cannot be used: {error}") from None
    return {spec.name: spec for spec in specs}


def _first_turn(trace: Trace) -> tuple[str, list[LoggedCall]]:
    """Return the first request and its tool calls, or else those of the tool runs."""
    first = (_request(messages) for messages in trace.conversations)
    opening = next((message for message in first if message is not None), None)
    if opening is not None and opening.unknown:
        raise LeftOutError("the request holds more than text")
    request = opening.text.strip() if opening is not None else trace.asked.strip()
    calls: list[LoggedCall] = []
    seen: set[tuple[str, int]] = set()
    known: set[tuple[str, str]] = set()
    over = False
    for messages in trace.conversations:
        said = _request(messages)
        turn: Sequence[LoggedMessage] = messages
        if said is not None and said.text.strip() == request:
            turn = _until_more(messages)
            over = over or len(turn) < len(messages)
        elif over:  # another agent works on a later request
            continue
        times: Counter[str] = Counter()
        for call in (call for message in turn for call in message.calls):
            times[call.key] += 1
            nth = (call.key, times[call.key])
            if nth not in seen and (call.id, call.key) not in known:
                calls.append(call)
            seen.add(nth)
        named = (call for message in turn for call in message.calls if call.id)
        known |= {(call.id, call.key) for call in named}
    return request, calls or ([] if over else [run.call for run in trace.runs])


def _request(messages: Sequence[LoggedMessage]) -> LoggedMessage | None:
    return next((message for message in messages if message.role == "user"), None)


def _until_more(messages: Sequence[LoggedMessage]) -> Sequence[LoggedMessage]:
    """Return the messages before the user's second message."""
    users = [n for n, message in enumerate(messages) if message.role == "user"]
    return messages[: users[1]] if len(users) > 1 else messages


def _answers(trace: Trace) -> dict[str, Result]:
    """Return the answers of tools by call id, from the messages, else the runs."""
    found: dict[str, Result] = {}
    for messages in trace.conversations:
        for message in messages:
            for result in message.results:
                found.setdefault(result.id, result)
    for run in trace.runs:
        if run.answer is not None:
            found.setdefault(run.answer.id, run.answer)
    found.pop("", None)
    return found


def _answers_in_order(trace: Trace) -> dict[str, list[Result]]:
    """Return the answers of calls without an id, by :attr:`LoggedCall.key`."""
    found: dict[str, list[Result]] = {}
    for messages in trace.conversations:
        calls = [c for message in messages for c in message.calls if not c.id]
        results = [r for message in messages for r in message.results if not r.id]
        of_this: dict[str, list[Result]] = {}
        for call, result in zip(calls, results, strict=False):
            of_this.setdefault(call.key, []).append(result)
        for key, answers in of_this.items():  # later conversations repeat earlier ones
            found[key] = max(answers, found.get(key, []), key=len)
    return found


def _unknown_parts(trace: Trace) -> list[str]:
    """Return the types of parts that were not read, of answers of models and tools."""
    return sorted(
        {
            kind
            for messages in trace.conversations
            for message in messages
            if message.role != "user"
            for kind in message.unknown
        }
    )


def _problem(
    call: LoggedCall, answer: Result | None, specs: Mapping[str, ToolSpec] | None
) -> str:
    if call.arguments is None:
        return f"{call.name}: its arguments are no JSON object"
    if answer is not None and (
        answer.failed or answer.text.lstrip().lower().startswith("error")
    ):
        return f"{call.name}: it failed"
    if specs is None:
        return ""
    if call.name not in specs:
        return f"{call.name}: no tool of yours has this name"
    try:
        specs[call.name].validate(call.arguments)
    except ValidationError:
        return f"{call.name}: its arguments do not fit the tool"
    return ""
