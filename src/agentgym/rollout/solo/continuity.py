"""Continuity: does each model call's prompt hold everything that came before it?

An agent loop that drops, rewrites or reorders what was said earlier makes its model
forget, and makes its trajectories untrainable as one sequence. The check compares
each call with the one before it by the same agent; the first difference wins where
one causes the others.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import pairwise
from typing import Any

from agentgym.core.trajectory import ModelCall, Trajectory

_SHOWN = 60


class LossKind(StrEnum):
    """How a conversation lost context."""

    MISSING = "missing"
    ALTERED = "altered"
    INSERTED = "inserted"
    SYSTEM_CHANGED = "system_changed"
    REPLY_MISSING = "reply_missing"
    REPLY_ALTERED = "reply_altered"
    RESULT_MISSING = "result_missing"
    RESULT_WITHOUT_CALL = "result_without_call"
    TOKENS_BROKEN = "tokens_broken"


@dataclass(frozen=True)
class ContextLoss:
    """One place where context was lost.

    Attributes:
        call: Index of the model call, among the trajectory's, whose prompt differs.
        message: Index of the message: in the earlier call's prompt if it is gone,
            else in this call's; None where tokens are compared.
        kind: What happened.
        detail: What changed, for people.
    """

    call: int
    message: int | None
    kind: LossKind
    detail: str

    def __str__(self) -> str:
        where = "" if self.message is None else f", message {self.message}"
        return f"call {self.call}{where}: {self.detail}"


def check_continuity(trajectory: Trajectory) -> list[ContextLoss]:
    """Return where the prompts of a trajectory lost context, in order.

    Agents of a team are followed separately. Calls without recorded messages are
    passed over. Token ids are compared where both calls have them: each prompt must
    start with the earlier prompt and its response.
    """
    by_agent: dict[str, list[tuple[int, ModelCall]]] = {}
    for index, call in enumerate(trajectory.model_calls):
        by_agent.setdefault(call.agent, []).append((index, call))
    losses: list[ContextLoss] = []
    for calls in by_agent.values():
        for index, call in calls:
            losses += _results_without_call(index, call)
        for (_, before), (index, call) in pairwise(calls):
            if before.messages and call.messages:
                losses += _compare(index, before, call)
            losses += _compare_tokens(index, before, call)
    return sorted(losses, key=lambda loss: loss.call)


def _compare(index: int, before: ModelCall, call: ModelCall) -> Iterator[ContextLoss]:
    """Compare two successive prompts of one agent."""
    old = [_key(message) for message in before.messages]
    new = [_key(message) for message in call.messages]
    if new[: len(old)] == old:
        yield from _compare_reply(index, before, call, len(old))
        return
    reply_at = len(new)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            reply_at = j2
            continue
        j = j1
        for i in range(i1, i2):
            earlier = before.messages[i]
            if j < j2 and call.messages[j].get("role") == earlier.get("role"):
                yield _altered(index, j, earlier, call.messages[j])
                j += 1
            else:
                detail = f"{_words(earlier)} is missing"
                yield ContextLoss(index, i, LossKind.MISSING, detail)
        reply_at = j
        if i2 < len(old):
            for place in range(j, j2):
                detail = f"{_words(call.messages[place])} stands before earlier ones"
                yield ContextLoss(index, place, LossKind.INSERTED, detail)
    yield from _compare_reply(index, before, call, reply_at)


def _altered(
    index: int, place: int, old: dict[str, Any], new: dict[str, Any]
) -> ContextLoss:
    if old.get("role") == new.get("role") == "system":
        detail = f"the system prompt changed from {_cut(old)} to {_cut(new)}"
        return ContextLoss(index, place, LossKind.SYSTEM_CHANGED, detail)
    detail = f"{_words(old)} became {_words(new)}"
    return ContextLoss(index, place, LossKind.ALTERED, detail)


def _compare_reply(
    index: int, before: ModelCall, call: ModelCall, start: int
) -> Iterator[ContextLoss]:
    """Look for the earlier call's reply, and its tool results, from ``start`` on."""
    said = {
        "role": "assistant",
        "content": before.content,
        "tool_calls": [
            {"id": c.id, "function": {"name": c.name, "arguments": c.arguments}}
            for c in before.tool_calls
        ],
    }
    rest = call.messages[start:]
    if _key(said) not in map(_key, rest):
        place = next(
            (i for i, m in enumerate(rest) if m.get("role") == "assistant"), None
        )
        if place is None:
            detail = f"the reply to the call before, {_cut(said)}, is missing"
            yield ContextLoss(index, start, LossKind.REPLY_MISSING, detail)
        else:
            detail = (
                f"the reply to the call before was {_cut(said)} and became "
                f"{_cut(rest[place])}"
            )
            yield ContextLoss(index, start + place, LossKind.REPLY_ALTERED, detail)
            return
    answered = {m.get("tool_call_id") for m in rest if m.get("role") == "tool"}
    for requested in before.tool_calls:
        if requested.id not in answered:
            detail = f"the result of tool call {requested.id!r} is missing"
            yield ContextLoss(index, start, LossKind.RESULT_MISSING, detail)


def _results_without_call(index: int, call: ModelCall) -> Iterator[ContextLoss]:
    asked: set[str] = set()
    for place, message in enumerate(call.messages):
        if message.get("role") == "assistant":
            asked |= {c.get("id", "") for c in message.get("tool_calls") or []}
        elif message.get("role") == "tool" and message.get("tool_call_id") not in asked:
            detail = f"a tool result, {_cut(message)}, has no tool call before it"
            yield ContextLoss(index, place, LossKind.RESULT_WITHOUT_CALL, detail)


def _compare_tokens(
    index: int, before: ModelCall, call: ModelCall
) -> Iterator[ContextLoss]:
    if not before.prompt_ids or not call.prompt_ids:
        return
    context = before.prompt_ids + before.response_ids
    if call.prompt_ids[: len(context)] == context:
        return
    pairs = enumerate(zip(context, call.prompt_ids, strict=False))
    shorter = min(len(context), len(call.prompt_ids))
    at = next((i for i, (old, new) in pairs if old != new), shorter)
    detail = (
        f"the prompt's tokens differ from token {at} of the {len(context)} before it"
    )
    yield ContextLoss(index, None, LossKind.TOKENS_BROKEN, detail)


def _key(message: dict[str, Any]) -> str:
    """Return what a message says, however its JSON is written."""
    calls = [
        (
            call.get("id"),
            call.get("function", {}).get("name"),
            _canonical(call.get("function", {}).get("arguments")),
        )
        for call in message.get("tool_calls") or []
    ]
    content = message.get("content") or ""
    parts = (message.get("role"), content, calls, message.get("tool_call_id"))
    return json.dumps(parts, sort_keys=True, default=str)


def _canonical(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _words(message: dict[str, Any]) -> str:
    return f"the {message.get('role', 'unknown')} message {_cut(message)}"


def _cut(message: dict[str, Any]) -> str:
    content = message.get("content")
    names = [c.get("function", {}).get("name") for c in message.get("tool_calls") or []]
    text = content if isinstance(content, str) and content else ""
    if names and not text:
        return f"a call of {', '.join(map(str, names))}"
    text = text or ("" if content is None else str(content))
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
