"""Estimates: a value over tasks with its 95 % interval."""

from collections.abc import Sequence
from math import comb, nan, sqrt
from typing import TYPE_CHECKING, Any, SupportsFloat

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pair = tuple[float, float]
"""Numerator and denominator of one task."""

_RESAMPLES = 2000
_Z95 = 1.959964


class Estimate(BaseModel):
    """A mean with its 95 % interval, and as a number the mean alone.

    ``estimate >= 0.95``, ``f"{estimate:.1%}"`` and ``float(estimate)`` speak of
    ``value``; what was not measured is NaN there, neither above nor below anything.

    Attributes:
        value: The mean over tasks.
        low: Lower end of the interval.
        high: Upper end.
        n: Tasks that the mean is over; 0: not measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    import numpy as np

    array = np.asarray(pairs, dtype=float).reshape(-1, 2)
    used = array[array[:, 1] > 0]
    n = len(used)
    if n == 0:
        return UNMEASURED
    value = _ratio(used)
    ratios = used[:, 0] / used[:, 1]
    if np.all(ratios == ratios[0]):
        low, high = wilson(value, n) if share else (value, value)
        return Estimate(value=value, low=low, high=high, n=n)
    sums = used[_draws(n)].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), n=n)


def estimate_difference(
    before: Sequence[Pair], after: Sequence[Pair], *, share: bool = True
) -> Estimate:
    """Estimate how much a ratio changed between two measurements of the same tasks.

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

    Returns:
        ``after - before``.
    """
    import numpy as np

    old = np.asarray(before, dtype=float).reshape(-1, 2)
    new = np.asarray(after, dtype=float).reshape(-1, 2)
    used = (old[:, 1] > 0) & (new[:, 1] > 0)
    old, new = old[used], new[used]
    n = len(old)
    if n == 0:
        return UNMEASURED
    value = _ratio(new) - _ratio(old)
    changes = new[:, 0] / new[:, 1] - old[:, 0] / old[:, 1]
    if np.allclose(changes, changes[0], rtol=0.0, atol=1e-12):
        part = wilson(0.0, n)[1] if share else 0.0
        low, high = value - (value + 1) * part, value + (1 - value) * part
        return Estimate(value=value, low=low, high=high, n=n)
    draws = _draws(n)
    before_sums, after_sums = old[draws].sum(axis=1), new[draws].sum(axis=1)
    drawn = after_sums[:, 0] / after_sums[:, 1] - before_sums[:, 0] / before_sums[:, 1]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), n=n)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share over ``n`` trials (1927)."""
    z2 = _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _ratio(pairs: "NDArray[Any]") -> float:
    return float(pairs[:, 0].sum() / pairs[:, 1].sum())


def _draws(n: int) -> "NDArray[Any]":
    """Return the tasks of each resample; the same each time."""
    import numpy as np

    return np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))
