"""Metrics of an evaluation, each with its 95 % interval over tasks."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.evaluate.intervals import (
    UNMEASURED,
    Estimate,
    Pair,
    estimate_ratio,
    pass_power_k,
)
from agentgym.evaluate.prices import FREE, Prices

MetricName = Literal[
    "right_tool",
    "right_arguments",
    "pass_1",
    "pass_k",
    "tool_reliability",
    "reward",
    "model_calls",
    "prompt_tokens",
    "tokens",
    "cost",
    "seconds",
]
METRICS: tuple[MetricName, ...] = get_args(MetricName)
SHARES: tuple[MetricName, ...] = METRICS[:5]
"""Those that are shares, 0..1; the others are means per rollout."""


class TaskResult(BaseModel):
    """What became of all attempts at one task.

    Attributes:
        task_id: The task; ``family`` and ``level`` say what kind it is.
        attempts: Scored rollouts, of which ``successes`` succeeded.
        dropped: Rollouts that could not be scored; they count nowhere else.
        sums: Numerator and denominator per metric, but for pass^k.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    family: str = ""
    level: int = 1
    attempts: int
    successes: int
    dropped: int = 0
    sums: dict[str, Pair] = Field(default_factory=dict)

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], prices: Prices | None) -> Self:
        """Add up the attempts at one task."""
        scored = [t for t in trajectories if t.status is not RolloutStatus.DROPPED]
        first = trajectories[0]
        counts = {
            name: [pair for t in scored if (pair := count(t)) is not None]
            for name, count in _COUNTS.items()
        }
        if prices is not None:
            counts["cost"] = [
                (prices.of(*tokens), 1.0)
                for t in scored
                if (tokens := _tokens(t)) is not None
            ]
        return cls(
            task_id=first.task_id,
            family=first.family,
            level=first.level,
            attempts=len(scored),
            successes=sum(bool(t.success) for t in scored),
            dropped=len(trajectories) - len(scored),
            sums={
                name: (sum(a for a, _ in pairs), sum(b for _, b in pairs))
                for name, pairs in counts.items()
            },
        )

    @property
    def success_rate(self) -> Fraction:
        """Successes per scored attempt, exactly.

        Raises:
            ZeroDivisionError: Nothing was scored.
        """
        return Fraction(self.successes, self.attempts)

    def pair(self, metric: MetricName, k: int) -> Pair:
        """Return numerator and denominator of a metric; ``(0, 0)`` if unmeasured."""
        if metric == "pass_k":
            if self.attempts < k:
                return 0.0, 0.0
            return pass_power_k(self.successes, self.attempts, k), 1.0
        return self.sums.get(metric, (0.0, 0.0))


class Metrics(BaseModel):
    """What an agent did on a set of tasks; shares are in 0..1.

    Attributes:
        tasks: Distinct tasks.
        rollouts: Scored rollouts; ``dropped`` ones count nowhere else.
        k: The k of ``pass_k``.
        right_tool: Share of needed calls whose tool was called.
        right_arguments: Share of needed calls made with the right arguments.
        pass_1: Share of rollouts that succeeded.
        pass_k: Probability that k attempts at a task all succeed, by the unbiased
            estimator C(c, k) / C(n, k) of tau-bench (arXiv:2406.12045).
        tool_reliability: Share of tool calls that name an offered tool, validate,
            run without error and break no rule.
        reward: Mean reward.
        model_calls: Per rollout.
        tokens: Sampled tokens per rollout, ``prompt_tokens`` those of all its
            prompts.
        cost: US dollars per rollout; 0 for a model on this machine.
        seconds: Wall seconds per rollout.
        by_task: What the estimates are made of; empty in results of old versions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: int
    rollouts: int
    dropped: int
    k: int
    right_tool: Estimate
    right_arguments: Estimate
    pass_1: Estimate
    pass_k: Estimate
    tool_reliability: Estimate
    reward: Estimate
    model_calls: Estimate
    tokens: Estimate
    prompt_tokens: Estimate = UNMEASURED
    cost: Estimate = UNMEASURED
    seconds: Estimate = UNMEASURED
    by_task: tuple[TaskResult, ...] = ()

    @property
    def success_rate(self) -> float:
        """Alias of pass^1, the name used in success criteria."""
        return self.pass_1.value

    def __getitem__(self, metric: MetricName) -> Estimate:
        """Return a metric by its name."""
        found: Estimate = dict(self)[metric]
        return found

    @classmethod
    def of(
        cls,
        trajectories: Sequence[Trajectory],
        *,
        k: int = 4,
        prices: Prices | None = FREE,
    ) -> Self:
        """Compute the metrics of scored trajectories, grouped by task.

        Args:
            trajectories: Any number per task; those not scored count as dropped.
            k: Of pass^k; lowered to the fewest attempts that a task has.
            prices: Of the model's tokens; None if they are not known.

        Raises:
            ValueError: No trajectory is scored.
        """
        grouped: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in trajectories:
            grouped[trajectory.task_id].append(trajectory)
        every = [TaskResult.of(attempts, prices) for attempts in grouped.values()]
        return cls.of_tasks(every, k=k)

    @classmethod
    def of_tasks(cls, every: Sequence[TaskResult], *, k: int = 4) -> Self:
        """Compute the metrics of tasks, also of several measurements together.

        Args:
            every: What came of each task.
            k: Of pass^k; lowered to the fewest attempts that a task has.

        Raises:
            ValueError: No rollout was scored.
        """
        scored = [task for task in every if task.attempts]
        if not scored:
            raise ValueError("No rollout was scored, so there is nothing to measure.")
        k = min(k, min(task.attempts for task in scored))
        return cls(
            tasks=len(scored),
            rollouts=sum(task.attempts for task in scored),
            dropped=sum(task.dropped for task in every),
            k=k,
            by_task=tuple(every),
            **{
                name: estimate_ratio(
                    [task.pair(name, k) for task in scored], share=name in SHARES
                )
                for name in METRICS
            },
        )

    def at_most(self, k: int) -> Self:
        """Return the same with pass^k of at most ``k``, as far as tasks are recorded.

        A rollout that was dropped lowers the k of its measurement, and pass^3 says
        nothing beside pass^4.
        """
        if self.k <= k or not self.by_task:
            return self
        return self.of_tasks(self.by_task, k=k)


def _reliable_calls(trajectory: Trajectory) -> Pair:
    calls = trajectory.get_tool_calls()
    return sum(call.outcome is ToolOutcome.OK for call in calls), len(calls)


def _share(value: float | None) -> Pair | None:
    return None if value is None else (value, 1.0)


def _tokens(trajectory: Trajectory) -> tuple[int, int] | None:
    """Return prompt and sampled tokens; None if some calls were not counted."""
    stats = trajectory.stats()
    if stats.uncounted_calls:
        return None
    return stats.prompt_tokens, stats.response_tokens


def _token_pair(trajectory: Trajectory, which: int) -> Pair | None:
    tokens = _tokens(trajectory)
    return None if tokens is None else (tokens[which], 1.0)


_COUNTS: dict[MetricName, Callable[[Trajectory], Pair | None]] = {
    "right_tool": lambda t: _share(t.right_tool),
    "right_arguments": lambda t: _share(t.right_arguments),
    "pass_1": lambda t: (float(bool(t.success)), 1.0),
    "tool_reliability": _reliable_calls,
    "reward": lambda t: _share(t.reward),
    "model_calls": lambda t: (len(t.model_calls), 1.0),
    "prompt_tokens": lambda t: _token_pair(t, 0),
    "tokens": lambda t: _token_pair(t, 1),
    "seconds": lambda t: (t.duration_s, 1.0),
}
