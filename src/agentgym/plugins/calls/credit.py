"""The reward of one sampled answer: right in parts, so that near misses differ."""

from collections.abc import Mapping, Sequence

from agentgym.core.needs import NeededCall
from agentgym.core.tools import MALFORMED_CALL, ToolSpec, same_arguments
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory

# Credit of a call that can be read; that names an offered tool; that names the right
# tool; at most for its arguments, by their share that is right; if all of it is right.
#
# A bare right-or-wrong reward makes a small model answer in words: where words are due
# they are often right, where a call is due it is mostly wrong.
READABLE, OFFERED, RIGHT_TOOL, ARGUMENTS, RIGHT = 0.05, 0.1, 0.3, 0.4, 1.0
Specs = Mapping[str, ToolSpec]


def answer_credit(
    answer: ModelCall,
    made: Sequence[ToolCall],
    due: Sequence[NeededCall],
    specs: Specs,
    *,
    at_once: bool,
    succeeded: bool,
) -> float:
    """Return the credit of an answer, 0..1.

    Args:
        answer: The policy's answer.
        made: Its tool calls, with their outcomes.
        due: The needed calls that were left. Without any, an answer in words is right.
        specs: The tools of the task, by name.
        at_once: Whether the answer must make all calls that are due, not only the next.
        succeeded: Whether the episode succeeded after the other calls that were due.
            Then arguments that have no single right value are right.
    """
    if not due:
        return RIGHT if answer.content and not answer.tool_calls else 0.0
    left, earned = list(due), 0.0
    for call in made:
        credits = [_credit(call, need, specs, succeeded) for need in left]
        best = max(range(len(left)), key=credits.__getitem__, default=None)
        if best is None:
            continue
        # Another call than the next one is right only if the episode succeeds.
        early = best > 0 and not at_once and not succeeded
        earned += min(credits[best], RIGHT_TOOL) if early else credits[best]
        if credits[best] == RIGHT:
            del left[best]
    return earned / max(len(due) if at_once else 1, len(answer.tool_calls), len(made))


def _credit(call: ToolCall, need: NeededCall, specs: Specs, succeeded: bool) -> float:
    """Return the credit of a call where ``need`` is due."""
    spec = specs.get(call.name)
    if need.accepts(call, spec, succeeded):
        return RIGHT
    if call.name == MALFORMED_CALL:
        return 0.0
    if call.name not in need.tools:
        return OFFERED if spec is not None else READABLE
    given, wanted = call.arguments or {}, need.arguments
    names = {*given, *wanted} - need.by_outcome
    right = sum(
        same_arguments(spec, given, wanted, without=frozenset({*given, *wanted} - {n}))
        for n in names
    )
    return RIGHT_TOOL + ARGUMENTS * right / max(1, len(names))


def sampled_step(rollout: Trajectory) -> tuple[ModelCall, list[ToolCall]] | None:
    """Return a rollout's sampled answer with its tool calls; None without one."""
    answer: ModelCall | None = None
    made: list[ToolCall] = []
    for step in rollout.steps:
        if isinstance(step, ModelCall):
            if answer is not None:
                break
            answer = None if step.is_planned else step
        elif answer is not None:
            made.append(step)
    return None if answer is None else (answer, made)
