"""Parts of rewards that compare an attempt with the plan of its task."""

from collections.abc import Callable, Mapping, Sequence

from agentgym.core.trajectory import Reward
from agentgym.scenarios.plan_reward import (
    NEXT_TOOL,
    NO_CALL,
    Attempts,
    ReceivedCall,
    success_parts,
    tools_called,
)

LOWEST = -1.0


def grade(
    attempts: Attempts,
    needed: Sequence[str],
    parts: Mapping[str, float],
    *,
    success: bool,
    arguments: float,
    error: float,
    spare: int | None = None,
) -> Reward:
    """Return the reward of a success, of an attempt without a call, or of ``parts``.

    Args:
        attempts: The calls of the episode.
        needed: The tool of each call of the shortest solution.
        parts: The parts of the reward without success.
        success: Whether the attempt is a success.
        arguments: Share of the needed calls that were made with right arguments.
        error: The cost of a failed call in a success, below 0.
        spare: Needless calls within which a success earns at least 0.9; see
            :func:`~agentgym.scenarios.plan_reward.success_parts`.
    """
    if success:
        right = success_parts(attempts, len(needed), error, spare)
        return Reward(sum(right.values()), True, right, 1.0, 1.0)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    value = sum(parts.values())
    limit = {"limit": LOWEST - value} if value < LOWEST else {}
    tools = tools_called(needed, attempts.tools) / len(needed)
    return Reward(max(LOWEST, value), False, {**parts, **limit}, tools, arguments)


def in_order[S](
    plan: Sequence[S],
    done: Sequence[ReceivedCall],
    matches: Callable[[S, ReceivedCall], bool],
) -> int:
    """Return how many steps of a plan were made, in order."""
    made = 0
    for call in done:
        made += made < len(plan) and matches(plan[made], call)
    return made


def not_made[S](
    plan: Sequence[S],
    done: Sequence[ReceivedCall],
    matches: Callable[[S, ReceivedCall], bool],
) -> list[S]:
    """Return the steps of a plan that were not made, in any order."""
    left, missing = list(done), []
    for step in plan:
        found = next((call for call in left if matches(step, call)), None)
        if found is None:
            missing.append(step)
        else:
            left.remove(found)
    return missing


def next_tool(attempts: Attempts, tool: str, made: int) -> float:
    """Return ``NEXT_TOOL`` if a tool was called more often than in ``made`` steps."""
    return NEXT_TOOL if attempts.tools.count(tool) > made else 0.0
