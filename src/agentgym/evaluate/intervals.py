"""Estimates: a value over tasks with its 95 % interval; and a paired test."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb, lcm, nan, sqrt
from typing import TYPE_CHECKING, Any, SupportsFloat

from pydantic import BaseModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pair = tuple[float, float]
"""Numerator and denominator of one task."""

_RESAMPLES = 2000
_Z95 = 1.959964


class Estimate(BaseModel, frozen=True, extra="forbid"):
    """A mean with its 95 % interval, and as a number the mean alone.

    ``estimate >= 0.95``, ``f"{estimate:.1%}"`` and ``float(estimate)`` speak of
    ``value``; what was not measured is NaN there, neither above nor below anything.

    Attributes:
        value: The mean over tasks.
        low: Lower end of the interval.
        high: Upper end.
        n: Tasks that the mean is over; 0: not measured.
    """

    value: float
    low: float
    high: float
    n: int

    def __float__(self) -> float:
        return self.value if self.n else nan

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __lt__(self, other: SupportsFloat) -> bool:
        return float(self) < float(other)

    def __le__(self, other: SupportsFloat) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: SupportsFloat) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: SupportsFloat) -> bool:
        return float(self) >= float(other)


UNMEASURED = Estimate(value=0.0, low=0.0, high=0.0, n=0)


def pass_power_k(successes: int, attempts: int, k: int) -> float:
    """Return the unbiased estimate of pass^k of one task, C(c, k) / C(n, k).

    Yao et al. 2024, tau-bench, arXiv:2406.12045, section 3: the share of the subsets
    of ``k`` of the ``attempts`` in which all succeed.
    """
    return comb(successes, k) / comb(attempts, k)


def estimate_ratio(pairs: Sequence[Pair], *, share: bool = True) -> Estimate:
    """Estimate ``sum of numerators / sum of denominators`` over tasks.

    The interval is the percentile bootstrap over tasks (Efron 1979), so attempts at
    one task are not taken for independent. Where every task has the same ratio the
    bootstrap has no width, and of a share Wilson's interval (1927) on the tasks is
    used; of a mean, the interval then is the value alone.

    Args:
        pairs: Numerator and denominator per task.
        share: Whether the ratio is a share, 0..1, as opposed to a mean.
    """
    return _estimate([pairs], wilson if share else None)


def estimate_difference(
    before: Sequence[Pair], after: Sequence[Pair], *, share: bool = True
) -> Estimate:
    """Estimate ``after - before`` of a ratio that was measured twice on the same tasks.

    The interval is the paired percentile bootstrap: tasks are drawn with both their
    measurements (Efron and Tibshirani 1993, chapter 8), so what makes a task hard
    for both sides cancels out. Where every task changed by the same amount the
    bootstrap has no width; a share then gets the interval in which a part ``w`` of
    the tasks could have changed otherwise, as far as can be, where ``w`` is the upper
    end of Wilson's interval of 0 out of n.

    Args:
        before: Numerator and denominator per task.
        after: The same tasks in the same order; tasks without a denominator on
            either side are left out.
        share: Whether the ratio is a share, 0..1, as opposed to a mean.
    """
    return _estimate([after, before], _same_change if share else None)


def estimate_pooled(*sides: Sequence[Pair]) -> Estimate:
    """Estimate ``sum of numerators / sum of denominators``, or how much it changed.

    Tasks count though their own denominator is 0, as the cost of tasks that were never
    solved does in the cost per success. The interval is the percentile bootstrap over
    tasks; draws without any denominator are left out.

    Args:
        sides: Pairs per task, of one measurement; of two, the second is subtracted, and
            tasks are drawn with both their measurements.

    Returns:
        ``UNMEASURED`` if all denominators of a side are 0.
    """
    import numpy as np

    array = np.asarray(sides, dtype=float).reshape(len(sides), -1, 2)
    n = array.shape[1]
    if n == 0 or not np.all(array.sum(axis=1)[:, 1] > 0):
        return UNMEASURED
    value = float(_change(array.sum(axis=1)))
    draws = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))
    sums = np.stack([side[draws].sum(axis=1) for side in array])
    found = _change(sums[:, np.all(sums[:, :, 1] > 0, axis=0)])
    low, high = map(float, np.quantile(found, [0.025, 0.975]))
    return Estimate(value=value, low=low, high=high, n=n)


def _estimate(
    sides: Sequence[Sequence[Pair]],
    unanimous: Callable[[float, int], tuple[float, float]] | None,
) -> Estimate:
    """Estimate the ratio of the first side, less that of the second if there is one.

    ``unanimous`` gives the interval of a value that is the same in all ``n`` tasks.
    """
    import numpy as np

    array = np.asarray(sides, dtype=float).reshape(len(sides), -1, 2)
    array = array[:, np.all(array[:, :, 1] > 0, axis=0)]
    n = array.shape[1]
    if n == 0:
        return UNMEASURED
    value = float(_change(array.sum(axis=1)))
    changes = _change(array)
    if np.allclose(changes, changes[0], rtol=0.0, atol=1e-12):
        low, high = unanimous(value, n) if unanimous else (value, value)
        return Estimate(value=value, low=low, high=high, n=n)
    # The tasks of each resample are the same each time.
    draws = np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))
    drawn = _change(np.stack([side[draws].sum(axis=1) for side in array]))
    low, high = map(float, np.quantile(drawn, [0.025, 0.975]))
    return Estimate(value=value, low=low, high=high, n=n)


def _change(sides: "NDArray[Any]") -> "NDArray[Any]":
    """Return the ratios of the first of ``(sides, ..., 2)``, less those of the next."""
    ratios = sides[..., 0] / sides[..., 1]
    change: NDArray[Any] = ratios[0] - ratios[1:].sum(axis=0)
    return change


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share over ``n`` trials (1927)."""
    z2 = _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _same_change(value: float, n: int) -> tuple[float, float]:
    part = wilson(0.0, n)[1]
    return value - (value + 1) * part, value + (1 - value) * part


def sign_flip_p(differences: Sequence[Fraction]) -> float:
    """Return the exact two-sided p-value of a paired sign-flip test.

    If two agents do equally well, the sign of each task's difference is a coin's
    (Fisher 1935, section 21; Good 2005, *Permutation, Parametric and Bootstrap Tests
    of Hypotheses*, chapter 3). The p-value is the share of all 2^n assignments of
    signs whose sum is at least as far from 0 as the one seen. The distribution of
    the sum is computed, not sampled. With one attempt per task the differences are
    -1, 0 and 1, and this is McNemar's exact test (1947).

    Args:
        differences: Success rate after minus before, per task, as exact fractions.

    Returns:
        In (0, 1]; 1 if nothing differs.
    """
    import numpy as np

    scale = lcm(*(d.denominator for d in differences))
    sizes = [abs(int(d * scale)) for d in differences if d]
    seen = abs(int(sum(differences, Fraction(0)) * scale))
    chances = np.ones(1)  # of each sum, from the lowest to the highest
    for size in sizes:
        none = np.zeros(2 * size)
        chances = (np.append(none, chances) + np.append(chances, none)) / 2
    sums = np.arange(len(chances)) - sum(sizes)
    return min(1.0, float(chances[np.abs(sums) >= seen].sum()))
