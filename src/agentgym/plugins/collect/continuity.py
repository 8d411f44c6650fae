"""Continuity: check that each model call's prompt contains all earlier messages.

An agent loop that drops, rewrites or reorders earlier messages makes its model forget,
and its trajectories cannot be trained as one sequence. The check compares each call
with the same agent's previous call. If a difference causes further differences, only
the first is reported.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from agentgym.core.files import parse_json
from agentgym.core.trajectory import ModelCall, Trajectory

_SHOWN = 60


# The ways in which a prompt can lose context.
LossKind = Literal[
    "missing",
    "altered",
    "inserted",
    "system_changed",
    "result_missing",
    "result_without_call",
    "tokens_broken",
]


@dataclass(frozen=True)
class ContextLoss:
    """One place where a prompt lost context.

    Attributes:
        call: Index of the model call whose prompt lost context.
        message: Index of the message in the call's prompt; for the kind ``missing``, in
            the previous call's prompt. None if tokens were compared.
        kind: The kind of change.
        detail: A description of the change.
    """

    call: int
    message: int | None
    kind: LossKind
    detail: str

    def __str__(self) -> str:
        where = "" if self.message is None else f", message {self.message}"
        return f"call {self.call}{where}: {self.detail}"


# The fields `message`, `kind` and `detail` of each ContextLoss.
Losses = Iterator[tuple[int | None, LossKind, str]]


def check_continuity(trajectory: Trajectory) -> list[ContextLoss]:
    """Return the places where a trajectory's prompts lost context, in order.

    Agents of a team are checked separately. Calls without recorded messages are
    skipped. If two successive calls have token ids, the later prompt must begin with
    the tokens of the earlier prompt and its response.
    """
    losses: list[ContextLoss] = []
    last: dict[str, ModelCall] = {}
    for index, call in enumerate(trajectory.model_calls):
        found = [*_results_without_call(call)]
        if before := last.get(call.agent):
            if before.messages and call.messages:
                found += _compare(before, call)
            if before.prompt_ids and call.prompt_ids:
                found += _compare_tokens(before, call)
        losses += [ContextLoss(index, *loss) for loss in found]
        last[call.agent] = call
    return losses


def _compare(before: ModelCall, call: ModelCall) -> Losses:
    """Yield the losses between two successive calls of one agent."""
    reply = {
        "role": "assistant",
        "content": before.content,
        "tool_calls": [requested.to_openai() for requested in before.tool_calls],
    }
    known = [*before.messages, reply]
    old, new = list(map(_key, known)), list(map(_key, call.messages))
    for tag, i1, i2, j1, j2 in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            continue
        j = j1
        for i in range(i1, i2):
            role = known[i].get("role")
            if j < j2 and call.messages[j].get("role") == role:
                kind: LossKind = "system_changed" if role == "system" else "altered"
                yield j, kind, f"{_words(known[i])} became {_words(call.messages[j])}"
                j += 1
            else:
                yield i, "missing", f"{_words(known[i])} is missing"
        for place in range(j, j2) if i2 < len(old) else ():
            detail = f"{_words(call.messages[place])} stands before earlier ones"
            yield place, "inserted", detail
    answered = {m.get("tool_call_id") for m in call.messages if m.get("role") == "tool"}
    for requested in before.tool_calls:
        if requested.id not in answered:
            detail = f"the result of tool call {requested.id!r} is missing"
            yield len(known), "result_missing", detail


def _results_without_call(call: ModelCall) -> Losses:
    asked: set[str] = set()
    for place, message in enumerate(call.messages):
        if message.get("role") == "assistant":
            asked |= {c.get("id", "") for c in _calls(message)}
        elif message.get("role") == "tool" and message.get("tool_call_id") not in asked:
            detail = f"a tool result, {_cut(message)}, has no tool call before it"
            yield place, "result_without_call", detail


def _compare_tokens(before: ModelCall, call: ModelCall) -> Losses:
    context = before.prompt_ids + before.response_ids
    pairs = enumerate(zip(context, call.prompt_ids, strict=False))
    shorter = min(len(context), len(call.prompt_ids))
    at = next((i for i, (old, new) in pairs if old != new), shorter)
    if at < len(context):
        detail = f"the prompt's tokens differ from token {at} of the {len(context)}"
        yield None, "tokens_broken", f"{detail} before it"


def _key(message: dict[str, Any]) -> str:
    """Return a text that is equal for equal messages, however their JSON is written."""
    functions = [(c.get("id"), c.get("function", {})) for c in _calls(message)]
    calls = [(i, f.get("name"), _canonical(f.get("arguments"))) for i, f in functions]
    content = message.get("content") or ""
    parts = (message.get("role"), content, calls, message.get("tool_call_id"))
    return json.dumps(parts, sort_keys=True, default=str)


def _canonical(arguments: Any) -> Any:
    try:
        return parse_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _words(message: dict[str, Any]) -> str:
    return f"the {message.get('role', 'unknown')} message {_cut(message)}"


def _cut(message: dict[str, Any]) -> str:
    content = message.get("content")
    names = [str(call.get("function", {}).get("name")) for call in _calls(message)]
    if names and not (isinstance(content, str) and content):
        return f"a call of {', '.join(names)}"
    text = "" if content is None else str(content)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
