"""Comparing two measurements of the same tasks."""

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
