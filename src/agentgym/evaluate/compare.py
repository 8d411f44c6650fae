"""Compare two measurements, e.g. before and after training, with statistical tests."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import compress
from math import comb, hypot
from typing import Literal

from agentgym.core.notebook import Shown
from agentgym.core.records import FrozenRecord
from agentgym.errors import UsageError
from agentgym.evaluate.intervals import Z95, Estimate, estimate_difference, sign_flip_p
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
"""The results of one task before and after training."""


class Comparison(Shown, FrozenRecord):
    """The differences between two measurements.

    Attributes:
        tasks: Number of tasks that were scored in both measurements.
        k: The k of pass^k in both measurements.
        differences: ``after - before`` of each metric, with paired 95 % intervals over
            tasks. ``n`` is 0 unless the metric was measured in both measurements.
        p_value: Two-sided p-value of the difference in pass^1 (the share of attempts
            that succeed), by :func:`sign_flip_p`: the probability of a difference of at
            least this size if both agents are equally good.
    """

    tasks: int
    k: int
    differences: dict[MetricName, Estimate]
    p_value: float


def are_paired(before: Metrics, after: Metrics) -> bool:
    """Return whether two measurements list the same tasks in the same order."""
    tasks = [task.task_id for task in before.by_task]
    return bool(tasks) and tasks == [task.task_id for task in after.by_task]


def compare(
    before: Metrics, after: Metrics, names: Collection[MetricName] = METRICS
) -> Comparison:
    """Compare the metrics ``names`` of two measurements of the same tasks.

    A task counts only if both measurements have a scored rollout of it. Only
    ``pass_1_of_all`` counts every task.

    Raises:
        UsageError: The tasks differ, or no task was scored in both measurements.
    """
    if not are_paired(before, after):
        raise UsageError(
            "These two were not measured on the same tasks: scenario, split, seed and "
            "number of tasks must be the same. Measure one of them again."
        )
    if not (pairs := paired(before, after)):
        raise UsageError("No task was scored on both sides, so nothing is comparable.")
    k = min(before.k, after.k)

    def difference(name: MetricName) -> Estimate:
        olds, news = zip(*pairs, strict=True)
        if name == "cost_per_success":
            return cost_per_success(news, olds)
        if name == "pass_1_of_all":
            olds, news = tuple(before.by_task), tuple(after.by_task)
        sides = ([task.pair(name, k) for task in side] for side in (olds, news))
        return estimate_difference(*sides, share=name in AS_SHARES)

    return Comparison(
        tasks=len(pairs),
        k=k,
        differences={name: difference(name) for name in names},
        p_value=sign_flip_p(
            [new.success_rate - old.success_rate for old, new in pairs]
        ),
    )


class Change(FrozenRecord):
    """The change of a share (0..1) between two measurements.

    Attributes:
        name: Name of a family (kind) of tasks, or of a metric. If the metric is not of
            the main held-out tasks, the name of their set stands before it.
        is_family: Whether the share is pass^1 of a family of tasks.
        p_value: Two-sided p-value, without a correction for several tests.
    """

    name: str
    is_family: bool
    before: float
    after: float
    p_value: float

    def words(self) -> str:
        """Return a text such as ``"refund 96 % -> 60 %"``."""
        return f"{self.name} {percent(self.before)} -> {percent(self.after)}"


class Effect(FrozenRecord):
    """The effect of training, measured on the same held-out tasks before and after.

    Attributes:
        verdict: Whether pass^1 on the main held-out tasks rose or fell significantly.
        before: pass^1 before training, 0..1.
        after: pass^1 after training, 0..1.
        p_value: p-value of this change by :func:`sign_flip_p`.
        tasks: Number of tasks that were scored before and after.
        better: Metrics and families of tasks that rose significantly.
        worse: Metrics and families of tasks that fell significantly.
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
    """Test which metrics and families changed between two measurements.

    The p-values of all families (kinds of tasks) are corrected together, with
    :func:`holm`. So are the p-values of all metrics, also of metrics on the ``further``
    sets of held-out tasks. If nothing changed, the chance of any false finding is then
    at most 5 % for families, and at most 5 % for metrics.
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


def solves_more(before: Metrics, after: Metrics) -> bool:
    """Return whether pass^1 rose significantly, by a two-sided test at 5 %.

    If both measurements have the same tasks, the test is :func:`sign_flip_p`. Else it
    is a z test: the difference divided by its standard error, which is computed from
    the 95 % intervals.
    """
    old, new = before.pass_1, after.pass_1
    if not new > old:
        return False
    if pairs := paired(before, after):
        return _sign_flip(pairs, "pass_1") < ALPHA
    error = hypot(old.standard_error, new.standard_error)
    return new.value - old.value > Z95 * error


def lost_families(before: Metrics, after: Metrics) -> list[Change]:
    """Return the families whose pass^1 fell significantly, largest fall first."""
    found = _significant(family_changes(before, after))
    lost = [change for change in found if change.after < change.before]
    return sorted(lost, key=lambda change: change.after - change.before)


def family_changes(before: Metrics, after: Metrics) -> list[Change]:
    """Return the change of pass^1 in each family of tasks, with its p-value.

    If the two measurements have different tasks, the total successes and attempts of
    each family are compared. The p-values are not corrected for the number of families,
    as :func:`holm` would do. Empty if there is only one family.
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
    """Return the two results of each task that was scored in both measurements.

    Empty if the measurements have different tasks.
    """
    if not are_paired(before, after):
        return []
    pairs = zip(before.by_task, after.by_task, strict=True)
    return [(old, new) for old, new in pairs if old.attempts and new.attempts]


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Return for each p-value whether it is significant by Holm's method (Holm 1979).

    The probability of any false finding among all tests is at most ``alpha``.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def stratified_p(tables: Iterable[tuple[int, int, int, int]]) -> float:
    """Return the exact two-sided p-value of a change in success, stratified by task.

    This is the exact form of the test of Cochran (1954) and Mantel and Haenszel (1959).
    Suppose that training changed nothing. Then, given a task's total number of
    successes, the number of its successes after training has a hypergeometric
    distribution. The p-value is the probability that the sum over all tasks is at least
    as far from its expected value as the observed sum. Unlike :func:`sign_flip_p`, this
    test counts every attempt, so few tasks with many attempts can be enough.
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
    """Return the numbers of successes and attempts of each family (kind) of tasks."""
    sums: dict[str, tuple[int, int]] = {}
    for task in metrics.by_task:
        if task.attempts:
            solved, tried = sums.get(task.family, (0, 0))
            sums[task.family] = solved + task.successes, tried + task.attempts
    return sums


def _share(prefix: str, pairs: Sequence[Pair], metric: MetricName) -> Change:
    """Return the change of a metric; ``prefix`` is put before the metric's name."""
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
    """Return a metric's value before and after; 0 if not measured."""
    sums = []
    for side in zip(*pairs, strict=True):
        found = [_sums(task, metric) for task in side]
        total = sum(out_of for _, out_of in found)
        sums.append(sum(value for value, _ in found) / total if total else 0.0)
    return sums[0], sums[1]


def _sums(task: TaskResult, metric: MetricName) -> tuple[float, float]:
    """Return a metric's numerator and denominator; for pass^1 as exact integers."""
    if metric == "pass_1":
        return task.successes, task.attempts
    return task.pair(metric, 1)


def _sign_flip(pairs: Sequence[Pair], metric: MetricName) -> float:
    """Return the p-value of a metric's change by :func:`sign_flip_p`.

    Tasks whose metric was not measured both before and after are left out.
    """
    differences = []
    for sides in pairs:
        (old, old_n), (new, new_n) = (_sums(task, metric) for task in sides)
        if old_n and new_n:
            difference = new / new_n - old / old_n
            differences.append(Fraction(round(difference * _GRID), _GRID))
    return sign_flip_p(differences) if differences else 1.0


def _significant(changes: Sequence[Change]) -> list[Change]:
    """Return the changes that are significant by Holm's method."""
    return list(compress(changes, holm([change.p_value for change in changes])))
