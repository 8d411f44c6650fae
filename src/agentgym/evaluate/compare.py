"""Comparing: two measurements of the same tasks, and one with what is asked of it."""

import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from pydantic import BaseModel

from agentgym.errors import UsageError
from agentgym.evaluate.intervals import Estimate, estimate_difference, sign_flip_p
from agentgym.evaluate.metrics import METRICS, SHARES, MetricName, Metrics


class Comparison(BaseModel, frozen=True, extra="forbid"):
    """How the second of two measurements differs from the first.

    Attributes:
        tasks: Tasks that both attempted.
        k: Of pass^k on both sides.
        differences: ``after - before`` by metric, with paired 95 % intervals over
            tasks; ``n`` is 0 where one side was not measured.
        p_value: Of pass^1, two-sided, by :func:`sign_flip_p`: how likely a
            difference at least as large is if both are equally good.
    """

    tasks: int
    k: int
    differences: dict[MetricName, Estimate]
    p_value: float


def are_paired(before: Metrics, after: Metrics) -> bool:
    """Say whether two measurements are of the same tasks, and tell them apart."""
    tasks = [task.task_id for task in before.by_task]
    return bool(tasks) and tasks == [task.task_id for task in after.by_task]


def compare(before: Metrics, after: Metrics) -> Comparison:
    """Compare two measurements of the same tasks.

    Tasks of which a side has no scored rollout are left out on both sides.

    Raises:
        UsageError: They are not of the same tasks, or no task was scored twice.
    """
    if not are_paired(before, after):
        raise UsageError(
            "These two were not measured on the same tasks: scenario, split, seed and "
            "number of tasks must be the same. Measure one of them again."
        )
    pairs = [
        (old, new)
        for old, new in zip(before.by_task, after.by_task, strict=True)
        if old.attempts and new.attempts
    ]
    if not pairs:
        raise UsageError("No task was scored on both sides, so nothing is comparable.")
    k = min(before.k, after.k)
    return Comparison(
        tasks=len(pairs),
        k=k,
        differences={
            name: estimate_difference(
                [old.pair(name, k) for old, _ in pairs],
                [new.pair(name, k) for _, new in pairs],
                share=name in SHARES,
            )
            for name in METRICS
        },
        p_value=sign_flip_p(
            [new.success_rate - old.success_rate for old, new in pairs]
        ),
    )


@dataclass(frozen=True)
class Gate:
    """A share that must be reached: by its value, or the low end of its interval."""

    metric: MetricName
    least: float
    by_low: bool = False

    @classmethod
    def parse(cls, text: str, *, by_low: bool = False) -> Self:
        """Read ``0.95``, which means tool reliability, or ``pass_1=0.9``.

        Raises:
            UsageError: No such share, or no number in 0..1.
        """
        name, equals, number = text.rpartition("=")
        metric = name.strip() if equals else "tool_reliability"
        if metric not in SHARES:
            close = get_close_matches(metric, SHARES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"No share is named {metric!r}.{hint} Known: {', '.join(SHARES)}."
            )
        try:
            least = float(number)
        except ValueError:
            least = math.nan
        if not 0 <= least <= 1:
            raise UsageError(f"{text!r}: write a share from 0 to 1, e.g. {metric}=0.9.")
        return cls(metric, least, by_low)

    def miss(self, metrics: Metrics) -> str | None:
        """Return what is missing in words; None if the gate is passed.

        What was not measured passes no gate.
        """
        found = metrics[self.metric]
        name = self.metric.replace("_", " ")
        least = f"{100 * self.least:g} %"
        if found.n == 0:
            return f"{name.capitalize()} was not measured, so it is not {least}."
        reached = found.low if self.by_low else found.value
        if reached >= self.least:
            return None
        what = f"The lower end of the interval of {name}" if self.by_low else name
        return f"{what.capitalize()}, {100 * reached:.1f} %, is below {least}."
