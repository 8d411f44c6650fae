"""Score an episode by its tool calls or by a user's function."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import ToolOutcome, ToolSpec
from agentgym.core.trajectory import Reward, ToolCall
from agentgym.errors import ScenarioError
from agentgym.scenarios.plan_reward import (
    EXTRA_CALL,
    NO_CALL,
    PROGRESS,
    melted,
    tools_called,
)
from agentgym.scenarios.tool_tasks.task_file import TaskLine

LOWEST = -1.0
_FAILED_CALL = -0.02
_LEAST_FOR_SUCCESS = 0.5

Check = Callable[[Task, list[ToolCall], dict[str, Any]], Any]


def score_calls(
    line: TaskLine, calls: Sequence[ToolCall], specs: Mapping[str, ToolSpec]
) -> Reward:
    """Score an episode by comparing its calls with the expected calls of its task.

    An episode succeeds if it makes every expected call, in order if the task requires
    an order. It then earns 1, minus a small cost for each other call, but at least 0.5:
    a repeated read is slow, not wrong. Guessing is not a success: calling every tool
    that the task does not need, or the needed tools with many different arguments.

    Without success, each expected call that was made with right arguments earns an
    equal share of 0.45. A call that has no arguments earns nothing, since it is made
    easily. Needless calls reduce this partial reward, down to 0. An episode without
    calls earns less than 0. A call of a forbidden tool earns -1, the lowest reward.
    """
    calls = [c for c in calls if not c.fault or c.outcome is ToolOutcome.OK]
    made = matched(line, calls, specs)
    expect = line.expect
    needed = [need for need, hit in zip(expect, made, strict=True) if hit]
    right = len(needed) / len(expect) if expect else 1.0
    right_tool = _right_tool(line, calls)
    forbidden = [call.name for call in calls if call.name in line.forbid]
    if forbidden:
        parts = {"forbidden": LOWEST}
        return Reward(LOWEST, False, parts, right_tool, right)
    if not calls:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    wanted = set[str]().union(*(need.tools for need in expect))
    others = [call.name for call in calls if call.name not in wanted]
    running = [c for c in calls if c.name in wanted and c.outcome is ToolOutcome.OK]
    ran = len(running)
    failed = len(calls) - len(others) - ran
    retries = max(0, failed - len(expect) - 1)
    needless = len(others) + max(0, ran - len(expect)) + retries
    unneeded = set(specs) - wanted
    spare = min(len(expect), max(0, len(unneeded) - 1))
    different = {json.dumps([c.name, c.arguments], sort_keys=True) for c in running}
    guesses = max(0, len(different) - len(expect)) + retries
    tried_all = bool(unneeded) and unneeded <= set(others)
    if len(needed) == len(expect) and guesses <= spare and not tried_all:
        cost = EXTRA_CALL * needless + _FAILED_CALL * failed
        parts = {"outcome": 1.0, "cost": max(cost, _LEAST_FOR_SUCCESS - 1.0)}
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    missing = len(expect) - len(needed)
    credit = PROGRESS * sum(bool(need.arguments) for need in needed) / len(expect)
    if tried_all and len(others) > missing:
        credit = 0.0
    credit *= melted(needless - spare - missing)
    return Reward(credit, False, {"progress": credit}, right_tool, right)


def without_done(
    line: TaskLine, by_code: Sequence[ToolCall], specs: Mapping[str, ToolSpec]
) -> TaskLine:
    """Return the task without the expected calls that the agent's code has made."""
    # The model did not request these calls, so they do not count for its reward.
    left = list(line.expect)
    for call in by_code:
        spec = specs.get(call.name)
        done = (n for n in left if n.accepts(call, spec, succeeded=True))
        if (need := next(done, None)) is not None:
            left.remove(need)
    return replace(line, expect=tuple(left)) if left else line


def matched(
    line: TaskLine, calls: Sequence[ToolCall], specs: Mapping[str, ToolSpec]
) -> list[bool]:
    """Return for each expected call whether it was made; a call counts once."""
    fits = [
        [need.accepts(call, specs.get(call.name), succeeded=True) for call in calls]
        for need in line.expect
    ]
    return _in_order(fits) if line.ordered else _in_any_order(fits)


def _in_order(fits: list[list[bool]]) -> list[bool]:
    """Match as many expected calls as possible: a longest common subsequence."""
    rows, columns = len(fits), len(fits[0]) if fits else 0
    most = [[0] * (columns + 1) for _ in range(rows + 1)]  # matches from (i, j) on
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            pair = 1 + most[i + 1][j + 1] if fits[i][j] else 0
            most[i][j] = max(pair, most[i + 1][j], most[i][j + 1])
    hit, i, j = [False] * rows, 0, 0
    while i < rows and j < columns:
        if fits[i][j] and most[i][j] == 1 + most[i + 1][j + 1]:
            hit[i], i, j = True, i + 1, j + 1
        elif most[i][j + 1] >= most[i + 1][j]:
            j += 1
        else:
            i += 1
    return hit


def _in_any_order(fits: list[list[bool]]) -> list[bool]:
    """Match as many expected calls as possible (Kuhn's algorithm)."""
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    for row in range(len(fits)):
        place(row, set())
    return [row in owner.values() for row in range(len(fits))]


def _right_tool(line: TaskLine, calls: Sequence[ToolCall]) -> float:
    if not line.expect:
        return 1.0
    called = [call.name for call in calls]
    names = [next((c for c in called if c in n.tools), n.tool) for n in line.expect]
    return tools_called(names, called) / len(line.expect)


def score_checked(
    check: Check,
    line: TaskLine,
    task: Task,
    calls: Sequence[ToolCall],
    state: dict[str, Any],
) -> Reward:
    """Score an episode with the user's check function."""
    if any(call.name in line.forbid for call in calls):
        return Reward(LOWEST, False, {"forbidden": LOWEST})
    found = check(task, list(calls), state)
    value = _number(found)
    if value is None or not 0 <= value <= 1:
        raise ScenarioError(
            f"The check function returned {found!r} for task {task.id}: return True or "
            "False, or a number from 0 to 1."
        )
    return Reward(value, value == 1.0, {"check": value})


def _number(found: Any) -> float | None:
    """Return a bool or a number of any library, e.g. NumPy's; None for other values."""
    if isinstance(found, str | bytes) or bool(getattr(found, "ndim", 0)):
        return None
    try:
        return float(found)
    except (TypeError, ValueError, OverflowError):
        return None
