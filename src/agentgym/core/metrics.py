"""Metrics of an evaluation, each with its 95 % interval over tasks."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import comb, sqrt
from typing import Self

from pydantic import BaseModel, ConfigDict

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus, Trajectory

_RESAMPLES = 2000
_Z95 = 1.959964


class Estimate(BaseModel):
    """A mean with its 95 % interval.

    Attributes:
        value: The mean over tasks.
        low: Lower end of the interval.
        high: Upper end.
        n: Tasks that the mean is over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    low: float
    high: float
    n: int


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
        tokens: Sampled tokens per rollout.
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

    @property
    def success_rate(self) -> float:
        """Alias of pass^1, the name used in success criteria."""
        return self.pass_1.value

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory], *, k: int = 4) -> Self:
        """Compute the metrics of scored trajectories, grouped by task.

        Args:
            trajectories: Any number per task; those not scored count as dropped.
            k: Of pass^k; lowered to the fewest attempts that a task has.

        Raises:
            ValueError: No trajectory is scored.
        """
        scored = [t for t in trajectories if t.status is not RolloutStatus.DROPPED]
        by_task: dict[str, list[Trajectory]] = defaultdict(list)
        for trajectory in scored:
            by_task[trajectory.task_id].append(trajectory)
        if not by_task:
            raise ValueError("No rollout was scored, so there is nothing to measure.")
        tasks = list(by_task.values())
        k = min(k, min(len(attempts) for attempts in tasks))

        def mean(value: Callable[[Trajectory], float], share: bool = True) -> Estimate:
            pairs = [(sum(map(value, attempts)), len(attempts)) for attempts in tasks]
            return estimate_ratio(pairs, share=share)

        return cls(
            tasks=len(tasks),
            rollouts=len(scored),
            dropped=len(trajectories) - len(scored),
            k=k,
            right_tool=mean(lambda t: t.right_tool or 0.0),
            right_arguments=mean(lambda t: t.right_arguments or 0.0),
            pass_1=mean(lambda t: float(bool(t.success))),
            pass_k=estimate_ratio([(pass_power_k(ts, k), 1) for ts in tasks]),
            tool_reliability=estimate_ratio([_reliable_calls(ts) for ts in tasks]),
            reward=mean(lambda t: t.reward or 0.0, share=False),
            model_calls=mean(lambda t: len(t.model_calls), share=False),
            tokens=mean(_sampled_tokens, share=False),
        )


def pass_power_k(attempts: Sequence[Trajectory], k: int) -> float:
    """Return the unbiased estimate of pass^k of one task (arXiv:2406.12045)."""
    successes = sum(bool(t.success) for t in attempts)
    return comb(successes, k) / comb(len(attempts), k)


def estimate_ratio(
    pairs: Sequence[tuple[float, float]], *, share: bool = True
) -> Estimate:
    """Estimate ``sum of numerators / sum of denominators`` over tasks.

    The interval is the percentile bootstrap over tasks (Efron 1979), so attempts at
    one task are not taken for independent. Where every task agrees on 0 or on 1 the
    bootstrap has no width, and Wilson's interval (1927) on the tasks is used.

    Args:
        pairs: Numerator and denominator per task.
        share: Whether the ratio is a share, 0..1, as opposed to a mean.
    """
    import numpy as np

    array = np.asarray(pairs, dtype=float)
    used = array[array[:, 1] > 0]
    n = len(used)
    if n == 0:
        return Estimate(value=0.0, low=0.0, high=0.0, n=0)
    value = float(used[:, 0].sum() / used[:, 1].sum())
    ratios = used[:, 0] / used[:, 1]
    if np.all(ratios == ratios[0]):
        if share and value in (0.0, 1.0):
            low, high = wilson(value, n)
            return Estimate(value=value, low=low, high=high, n=n)
        return Estimate(value=value, low=value, high=value, n=n)
    draws = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))
    sums = used[draws].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), n=n)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share over ``n`` trials."""
    z2 = _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _sampled_tokens(trajectory: Trajectory) -> int:
    return sum(len(call.response_ids) for call in trajectory.model_calls)


def _reliable_calls(attempts: Sequence[Trajectory]) -> tuple[float, float]:
    calls = [call for t in attempts for call in t.get_tool_calls()]
    return sum(call.outcome is ToolOutcome.OK for call in calls), len(calls)
