"""Record an episode's tool calls, and compute rewards that compare them with a plan.

A success earns 1, minus a small cost for each needless call; guessing is not a success.
Without success, each step of the plan that was made earns a share of ``PROGRESS``, and
a call of the right tool for the next step a part of it. Needless calls reduce this.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Trajectory
from agentgym.errors import RuleViolation, ToolError

PROGRESS = 0.45
NO_CALL = -0.04
NEXT_TOOL = 0.4
EXTRA_CALL = -0.05
DAMAGE = -0.1
SPARE_CALLS = {1: 1, 2: 3, 3: 4}
"""Number of needless calls that an attempt may contain, by level of the task."""

_LEAST_WITHIN_SPARE = 0.9
_LEAST_FOR_SUCCESS = 0.5
_NEEDLESS_CALLS = 3
_REJECTED = (
    ToolOutcome.UNKNOWN_TOOL,
    ToolOutcome.MALFORMED,
    ToolOutcome.INVALID_ARGUMENTS,
)


class ReceivedCall(NamedTuple):
    """A tool call that reached the environment; ``args`` include defaults."""

    tool: str
    args: dict[str, Any]


@dataclass
class Books:
    """A record of the tool calls that an environment received in an episode.

    Attributes:
        errors: Calls that were refused or failed, without those in ``violations``.
        violations: Calls that broke a rule.
    """

    calls: list[ReceivedCall] = field(default_factory=list)
    errors: list[ReceivedCall] = field(default_factory=list)
    violations: list[ReceivedCall] = field(default_factory=list)

    @contextmanager
    def recording(self, call: ReceivedCall) -> Iterator[None]:
        """Run the block, which makes ``call``; record it by the block's error."""
        try:
            yield
        except RuleViolation:
            self.violations.append(call)
            raise
        except ToolError:
            self.errors.append(call)
            raise
        self.calls.append(call)

    def forbid(self, message: str, *, enforce: bool) -> None:
        """Refuse a call that breaks a rule, or only record that the rule was broken."""
        if enforce:
            raise RuleViolation(message)
        self.violations.append(ReceivedCall("", {"rule": message}))


@dataclass(frozen=True)
class Attempts:
    """The tool calls of an episode, by outcome.

    Attributes:
        tools: Name of the tool of every call, including refused and failed calls.
        failed: Name of the tool of each call that failed or had invalid arguments.
    """

    done: Sequence[ReceivedCall]
    tools: Sequence[str]
    failed: Sequence[str]
    violations: int

    @classmethod
    def of(cls, books: Books, trajectory: Trajectory) -> Self:
        """Collect the calls that the environment and the trajectory recorded."""
        rejected = [
            call.name
            for call in trajectory.get_tool_calls()
            if call.outcome in _REJECTED
        ]
        refused = [call.tool for call in (*books.errors, *books.violations)]
        return cls(
            done=books.calls,
            tools=[*(call.tool for call in books.calls), *refused, *rejected],
            failed=[*(call.tool for call in books.errors), *rejected],
            violations=len(books.violations),
        )


def melted(needless: int) -> float:
    """Return the factor for a partial reward: 1, down to 0 with 3 needless calls."""
    return min(1.0, max(0.0, 1.0 - needless / _NEEDLESS_CALLS))


def is_guessed(
    attempts: Attempts, needed: Sequence[str], tools: Collection[str], spare: int
) -> bool:
    """Return whether an attempt reached its goal by trying many calls.

    It called every tool that the task does not need, or the needed tools with many
    different arguments, with more than ``spare`` needless calls.
    """
    if len(attempts.tools) - len(needed) <= spare:
        return False
    different = {
        json.dumps([call.tool, call.args], sort_keys=True, default=str)
        for call in attempts.done
        if call.tool in needed
    }
    failed = sum(tool in needed for tool in attempts.failed)
    unneeded = set(tools) - set(needed)
    tried_all = bool(unneeded) and unneeded <= set(attempts.tools)
    return tried_all or len(different) + failed - len(needed) > spare


def success_parts(
    attempts: Attempts, needed: int, error: float, spare: int | None = None
) -> dict[str, float]:
    """Return the reward's parts for a success: ``outcome`` and (negative) ``cost``.

    Their sum is at least 0.9 with up to ``spare`` needless calls, or if it is None,
    else 0.5.
    """
    failed = len(attempts.failed)
    extra = max(0, len(attempts.tools) - needed - failed)
    over = 0 if spare is None else max(0, len(attempts.tools) - needed - spare)
    cost = max(EXTRA_CALL * extra + error * failed, _LEAST_WITHIN_SPARE - 1.0)
    cost = max(cost + EXTRA_CALL * over, _LEAST_FOR_SUCCESS - 1.0)
    return {"outcome": 1.0, "cost": cost}


def tools_called(needed: Iterable[str], called: Iterable[str]) -> int:
    """Count the needed calls whose tool was called; a call counts for one of them."""
    left = list(called)
    count = 0
    for tool in needed:
        if tool in left:
            left.remove(tool)
            count += 1
    return count
