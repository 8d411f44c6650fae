"""Compare two measurements: differences, effect of training, lost families."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import comb, hypot
from typing import Literal

from pydantic import BaseModel

from agentgym.errors import UsageError
from agentgym.evaluate.intervals import (
    Z95,
    Estimate,
    estimate_difference,
    sign_flip_p,
)
from agentgym.evaluate.metrics import (
    AS_SHARES,
    METRICS,
    MetricName,
    Metrics,
    TaskResult,
    cost_per_success,
)
from agentgym.evaluate.numbers import percent

ALPHA = 0.05
_GRID = 240  # shares per task are rounded to 1/240, which keeps the exact test small
_TOLERANCE = 1e-9
_CHOICES: tuple[MetricName, ...] = ("right_tool", "right_arguments")
_MAIN: tuple[MetricName, ...] = (*_CHOICES, "tool_reliability")
_FURTHER: tuple[MetricName, ...] = (*_CHOICES, "pass_1")

Verdict = Literal["helped", "hurt", "made no difference"]
Pair = tuple[TaskResult, TaskResult]
"""One task's results before and after."""


class Comparison(BaseModel, frozen=True, extra="forbid"):
    """The differences between two measurements.

    Attributes:
        tasks: Number of tasks in both.
        k: The k of pass^k on both sides.
        differences: ``after - before`` by metric, with paired 95 % intervals over
            tasks; ``n`` is 0 if a side was not measured.
        p_value: Two-sided p-value of pass^1 by :func:`sign_flip_p`: the probability of
            a difference at least as large if both are equally good.
    """

    tasks: int
    k: int
    differences: dict[MetricName, Estimate]
    p_value: float


def are_paired(before: Metrics, after: Metrics) -> bool:
    """Return whether two measurements have the same tasks, listed by task."""
    tasks = [task.task_id for task in before.by_task]
    return bool(tasks) and tasks == [task.task_id for task in after.by_task]


def compare(before: Metrics, after: Metrics) -> Comparison:
    """Compare two measurements of the same tasks.

    Tasks without a scored rollout on one side are left out.

    Raises:
        UsageError: Their tasks differ, or no task was scored on both sides.
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
                share=name in AS_SHARES,
            )
            for name in METRICS
            if name not in ("cost_per_success", "pass_1_of_all")
        }
        | {
            "pass_1_of_all": estimate_difference(
                [old.pair("pass_1_of_all", k) for old in before.by_task],
                [new.pair("pass_1_of_all", k) for new in after.by_task],
            ),
            "cost_per_success": cost_per_success(
                [new for _, new in pairs], [old for old, _ in pairs]
            ),
        },
        p_value=sign_flip_p(
            [new.success_rate - old.success_rate for old, new in pairs]
        ),
    )


class Change(BaseModel, frozen=True, extra="forbid"):
    """A share that differs significantly.

    Attributes:
        name: A family of tasks, or a held-out set and its metric.
        is_family: Whether it is the success of a family.
        before: Share before training, 0..1.
        after: Share after training.
        p_value: Two-sided p-value before Holm's correction, after which it is
            significant.
    """

    name: str
    is_family: bool
    before: float
    after: float
    p_value: float

    def words(self) -> str:
        """Return a text such as ``"refund 96 % -> 60 %"``."""
        return f"{self.name} {percent(self.before)} -> {percent(self.after)}"


class Effect(BaseModel, frozen=True, extra="forbid"):
    """The effect of training, tested on the same held-out tasks.

    Attributes:
        verdict: The verdict for pass^1 on the main held-out tasks.
        before: pass^1 before training; ``after`` is pass^1 after it.
        p_value: p-value of the paired sign-flip test by task.
        tasks: Number of tasks scored on both sides.
        better: Metrics and families that rose significantly.
        worse: Metrics and families that fell significantly.
    """

    verdict: Verdict
    before: float
    after: float
    p_value: float
    tasks: int
    better: tuple[Change, ...] = ()
    worse: tuple[Change, ...] = ()


def measure_effect(
    before: Metrics,
    after: Metrics,
    further: Mapping[str, tuple[Metrics, Metrics]] | None = None,
) -> Effect | None:
    """Test the changes between two measurements of the same tasks.

    Families of tasks are one set of hypotheses, the shares of all held-out sets
    another. Each set is corrected with :func:`holm`, so that the chance of a false
    finding in an unchanged set is at most 5 %.

    Args:
        before: Metrics of the main held-out tasks.
        after: Metrics of the same tasks.
        further: Other held-out sets by name, before and after.

    Returns:
        None if the tasks differ or none was scored on both sides.
    """
    if not (pairs := paired(before, after)):
        return None
    p_value = _sign_flip(pairs, "pass_1")
    old, new = _means(pairs, "pass_1")
    verdict: Verdict = "made no difference"
    if p_value < ALPHA:
        verdict = "helped" if new > old else "hurt"
    sets = [_share("", pairs, metric) for metric in _MAIN]
    for name, (first, second) in (further or {}).items():
        found = paired(first, second)
        sets += [_share(f"{name}: ", found, metric) for metric in _FURTHER if found]
    changes = [*_significant(family_changes(before, after)), *_significant(sets)]
    return Effect(
        verdict=verdict,
        before=old,
        after=new,
        p_value=p_value,
        tasks=len(pairs),
        better=tuple(c for c in changes if c.after > c.before),
        worse=tuple(c for c in changes if c.after < c.before),
    )


def is_beyond_chance(before: Metrics, after: Metrics) -> bool:
    """Return whether pass^1 differs significantly, by a two-sided test at 5 %.

    The same tasks are compared by :func:`sign_flip_p`, different ones by their
    intervals: the difference divided by its standard error is approximately normal.
    """
    if pairs := paired(before, after):
        return _sign_flip(pairs, "pass_1") < ALPHA
    old, new = before.pass_1, after.pass_1
    error = hypot(old.standard_error, new.standard_error)
    return abs(new.value - old.value) > Z95 * error


def lost_families(before: Metrics, after: Metrics) -> list[Change]:
    """Return the families whose success fell significantly, the largest fall first.

    The tasks may differ: then families are compared as a whole.
    """
    found = _significant(family_changes(before, after))
    lost = [change for change in found if change.after < change.before]
    return sorted(lost, key=lambda change: change.after - change.before)


def family_changes(before: Metrics, after: Metrics) -> list[Change]:
    """Return each family's success on both sides, with its test.

    The p-values are not corrected for the number of families; see :func:`holm`. A
    single family is not compared.
    """
    tables: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    if pairs := paired(before, after):
        for old, new in pairs:
            row = (old.successes, old.attempts, new.successes, new.attempts)
            tables[old.family].append(row)
    else:
        sides = [_by_family(side) for side in (before, after)]
        for family in sides[0].keys() & sides[1].keys():
            tables[family].append((*sides[0][family], *sides[1][family]))
    if len(tables) < 2:
        return []
    changes = []
    for family, rows in sorted(tables.items()):
        solved, tried, solved_now, tried_now = map(sum, zip(*rows, strict=True))
        changes.append(
            Change(
                name=family,
                is_family=True,
                before=solved / tried,
                after=solved_now / tried_now,
                p_value=stratified_p(rows),
            )
        )
    return changes


def paired(before: Metrics, after: Metrics) -> list[Pair]:
    """Return the tasks that both sides scored; empty if the tasks differ."""
    if not are_paired(before, after):
        return []
    pairs = zip(before.by_task, after.by_task, strict=True)
    return [(old, new) for old, new in pairs if old.attempts and new.attempts]


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Return whether Holm's step-down test rejects each hypothesis (Holm 1979).

    The probability that it rejects any true hypothesis is at most ``alpha``.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def stratified_p(tables: Iterable[tuple[int, int, int, int]]) -> float:
    """Return the exact two-sided p-value for equal success before and after.

    Given each task's total successes, the successes after training are hypergeometric
    if nothing changed; their sum over tasks is tested (the exact form of Cochran 1954
    and Mantel and Haenszel 1959). Unlike a test by task alone, it has power for a
    family with few tasks.

    Args:
        tables: Per task: successes and attempts before, successes and attempts after.

    Returns:
        In (0, 1]; 1 if there can be no difference.
    """
    import numpy as np

    chances, seen, expected = np.ones(1), 0, 0.0
    for old, old_n, new, new_n in tables:
        total, attempts = old + new, old_n + new_n
        ways = [comb(new_n, x) * comb(old_n, total - x) for x in range(total + 1)]
        chances = np.convolve(chances, np.array(ways, float) / comb(attempts, total))
        seen, expected = seen + new, expected + total * new_n / attempts
    distance = np.abs(np.arange(len(chances)) - expected)
    far = distance >= abs(seen - expected) - _TOLERANCE
    return min(1.0, float(chances[far].sum()))


def _by_family(metrics: Metrics) -> dict[str, tuple[int, int]]:
    """Return successes and attempts of each scored family."""
    sums: dict[str, tuple[int, int]] = {}
    for task in metrics.by_task:
        if task.attempts:
            before = sums.get(task.family, (0, 0))
            both = before[0] + task.successes, before[1] + task.attempts
            sums[task.family] = both
    return sums


def _share(prefix: str, pairs: Sequence[Pair], metric: MetricName) -> Change:
    """Return a share of a held-out set, with its paired test by task."""
    before, after = _means(pairs, metric)
    name = "success" if metric == "pass_1" else metric.replace("_", " ")
    return Change(
        name=f"{prefix}{name}",
        is_family=False,
        before=before,
        after=after,
        p_value=_sign_flip(pairs, metric),
    )


def _means(pairs: Sequence[Pair], metric: MetricName) -> tuple[float, float]:
    """Return a metric on both sides; 0 if not measured."""
    sums = []
    for side in zip(*pairs, strict=True):
        found = [_sums(task, metric) for task in side]
        total = sum(out_of for _, out_of in found)
        sums.append(sum(value for value, _ in found) / total if total else 0.0)
    return sums[0], sums[1]


def _sums(task: TaskResult, metric: MetricName) -> tuple[float, float]:
    """Return a metric's numerator and denominator; those of success are exact."""
    if metric == "pass_1":
        return task.successes, task.attempts
    return task.pair(metric, 1)


def _sign_flip(pairs: Sequence[Pair], metric: MetricName) -> float:
    """Test a metric by task; leave out tasks that a side has not measured."""
    differences = []
    for sides in pairs:
        (old, old_n), (new, new_n) = (_sums(task, metric) for task in sides)
        if old_n and new_n:
            difference = new / new_n - old / old_n
            differences.append(Fraction(round(difference * _GRID), _GRID))
    return sign_flip_p(differences) if differences else 1.0


def _significant(changes: Sequence[Change]) -> list[Change]:
    """Return the changes that are significant by Holm's test."""
    rejected = holm([change.p_value for change in changes])
    return [c for c, is_real in zip(changes, rejected, strict=True) if is_real]
