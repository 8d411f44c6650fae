"""Estimate: a mean over tasks with its 95 % interval. sign_flip_p: a paired test."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb, lcm, nan, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

from agentgym.core.records import FrozenRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pair = tuple[float, float]
"""Numerator and denominator of a ratio for one task, e.g. successes and attempts."""

_RESAMPLES = 2000
Z95 = 1.959964


class _Added(NamedTuple):
    """Imaginary tasks to add before an interval is computed (see :func:`_adjusted`).

    A number ``tasks`` of them have the lowest possible value ``least``; as many have
    the highest possible value ``most``.
    """

    tasks: float
    least: float
    most: float


_SHARE = _Added(Z95**2 / 2, 0.0, 1.0)
_DIFFERENCE = _Added(1.0, -1.0, 1.0)


class Estimate(FrozenRecord):
    """A mean over tasks with its 95 % interval.

    ``estimate >= 0.95``, ``f"{estimate:.1%}"`` and ``float(estimate)`` use the mean. If
    nothing was measured (``n`` is 0), they use NaN, so every comparison is false.

    Attributes:
        value: The mean; 0 if not measured.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Number of tasks; 0 if not measured.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def standard_error(self) -> float:
        """The standard error of a normal distribution with this 95 % interval."""
        return (self.high - self.low) / (2 * Z95)

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


def points(difference: Estimate) -> str:
    """Format a difference of shares: ``"+15 points [+5, +25]"``."""
    ends = (difference.value, difference.low, difference.high)
    value, low, high = (f"{100 * end:+.0f}" for end in ends)
    return f"{value} points [{low}, {high}]"


UNMEASURED = Estimate.model_construct(value=0.0, low=0.0, high=0.0, n=0)


def pass_power_k(successes: int, attempts: int, k: int) -> float:
    """Return the unbiased estimate of pass^k of one task, C(c, k) / C(n, k).

    Of n attempts, c succeeded. The estimate is the share of all subsets of k attempts
    in which every attempt succeeds (Yao et al. 2024, tau-bench, arXiv:2406.12045,
    section 3).
    """
    return comb(successes, k) / comb(attempts, k)


def pass_at_k(successes: int, attempts: int, k: int) -> float:
    """Return the unbiased estimate of pass@k of one task, 1 - C(n - c, k) / C(n, k).

    Of n attempts, c succeeded. The estimate is the share of all subsets of k attempts
    in which at least one succeeds (Chen et al. 2021, HumanEval, arXiv:2107.03374,
    section 2.1).
    """
    return 1 - comb(attempts - successes, k) / comb(attempts, k)


def estimate_ratio(pairs: Sequence[Pair], *, share: bool = True) -> Estimate:
    """Estimate ``sum of numerators / sum of denominators`` over tasks.

    Attempts at one task are not independent, so the interval treats each task, not each
    attempt, as one observation. Tasks with denominator 0 are left out.

    The interval of a share (0..1) is that of Agresti and Coull (1998), *Approximate is
    Better than "Exact" for Interval Estimation of Binomial Proportions*. It adds z²/2
    tasks that succeed and as many that fail. So the interval has a width even if all
    attempts succeed, and it is valid for few tasks.

    The interval of a mean is a bootstrap over tasks; if all tasks have the same mean,
    its width is 0.
    """
    return _estimate([pairs], _SHARE if share else None)


def estimate_difference(
    before: Sequence[Pair], after: Sequence[Pair], *, share: bool = True
) -> Estimate:
    """Estimate ``after - before`` of a ratio measured twice on the same tasks.

    Each task is compared with itself, so that its difficulty has no influence. Tasks
    with denominator 0 on one side are left out. The interval of shares is that of
    Bonett and Price (2012), *Adjusted Wald Confidence Interval for a Difference of
    Binomial Proportions Based on Paired Data*. It adds a task that is solved only
    before, and a task that is solved only after. The interval of means is the paired
    bootstrap (Efron and Tibshirani 1993, chapter 8).
    """
    return _estimate([after, before], _DIFFERENCE if share else None)


def estimate_pooled(*sides: Sequence[Pair]) -> Estimate:
    """Estimate ``sum of numerators / sum of denominators``, or a difference of two.

    Unlike :func:`estimate_ratio`, tasks with denominator 0 count too: the cost per
    success includes the cost of unsolved tasks. The interval is the percentile
    bootstrap over tasks, expanded for few tasks (Hesterberg 2015, *What Teachers Should
    Know About the Bootstrap*, section 5.3). Bootstrap samples with denominator 0 are
    left out. If all denominators of a measurement are 0, return ``UNMEASURED``.

    ``sides`` are one or two measurements of the same tasks; the second ratio is
    subtracted from the first.
    """
    import numpy as np

    array = np.asarray(sides, dtype=float).reshape(len(sides), -1, 2)
    n = array.shape[1]
    if n == 0 or not np.all(array.sum(axis=1)[:, 1] > 0):
        return UNMEASURED
    return _bootstrapped(array)


def _estimate(sides: Sequence[Sequence[Pair]], added: _Added | None) -> Estimate:
    """Estimate the ratio of one measurement, or the difference of two (first - second).

    ``sides`` has, for each measurement, the numerator and denominator of each task.
    ``added`` are the tasks that the interval of a share adds; None for means.
    """
    import numpy as np

    array = np.asarray(sides, dtype=float).reshape(len(sides), -1, 2)
    array = array[:, np.all(array[:, :, 1] > 0, axis=0)]
    n = array.shape[1]
    if n == 0:
        return UNMEASURED
    value = float(_change(array.sum(axis=1)))
    if added is not None:
        low, high = _adjusted(array, value, added)
        return Estimate(value=value, low=low, high=high, n=n)
    changes = _change(array)
    if np.allclose(changes, changes[0], rtol=0.0, atol=1e-12):
        return Estimate(value=value, low=value, high=value, n=n)
    return _bootstrapped(array)


def _bootstrapped(sides: "NDArray[Any]") -> Estimate:
    """Estimate a ratio of sums, or a difference of two, with a bootstrap interval.

    For the method, see :func:`estimate_pooled`.
    """
    import numpy as np

    n = sides.shape[1]
    draws = _draws(n)
    sums = np.stack([side[draws].sum(axis=1) for side in sides])
    found = _change(sums[:, np.all(sums[:, :, 1] > 0, axis=0)])
    low, high = map(float, np.quantile(found, _tails(n)))
    value = float(_change(sides.sum(axis=1)))
    return Estimate(value=value, low=low, high=high, n=n)


@lru_cache(maxsize=2)
def _draws(n: int) -> "NDArray[Any]":
    """Return the bootstrap samples of ``n`` tasks, always the same: (samples, n)."""
    import numpy as np

    return np.random.default_rng(0).integers(0, n, size=(_RESAMPLES, n))


def _adjusted(
    sides: "NDArray[Any]", value: float, added: _Added
) -> tuple[float, float]:
    """Return both ends of the interval after the imaginary tasks ``added`` are added.

    A task's value is the linearized value of a ratio (Cochran 1977, *Sampling
    Techniques*, section 6.3), since tasks may differ in attempts or calls. ``sides`` is
    an array (measurements, tasks, 2); ``value`` the estimated ratio or difference.
    """
    import numpy as np

    n = sides.shape[1]
    ratios = sides.sum(axis=1)[:, :1] / sides.sum(axis=1)[:, 1:]
    excess = (sides[..., 0] - ratios * sides[..., 1]) / sides[..., 1].mean(1)[:, None]
    each = value + excess[0] - excess[1:].sum(axis=0)
    total = n + 2 * added.tasks
    mean = (each.sum() + added.tasks * (added.least + added.most)) / total
    ends = added.tasks * (added.least**2 + added.most**2)
    spread = (np.square(each).sum() + ends) / total - mean**2
    half = _student(total - 1) * sqrt(max(0.0, spread) / total)
    low, high = min(value, mean - half), max(value, mean + half)
    return max(added.least, float(low)), min(added.most, float(high))


def _tails(n: int) -> list[float]:
    """Return the two bootstrap quantiles that bound a 95 % interval over ``n`` tasks.

    For few tasks, the quantiles 2.5 % and 97.5 % give too narrow intervals. The
    returned quantiles are wider: they correct for the bootstrap's variance, which
    divides by n instead of n - 1, and use Student's t instead of a normal distribution.
    """
    if n < 2:
        return [0.0, 1.0]
    least = NormalDist().cdf(-sqrt(n / (n - 1)) * _student(n - 1))
    return [least, 1 - least]


def _student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t (Abramowitz and Stegun, 26.7.5).

    ``freedom`` are the degrees of freedom.
    """
    z, v = Z95, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _change(sides: "NDArray[Any]") -> "NDArray[Any]":
    """Return the ratios of a measurement, or its ratios minus those of a second one.

    ``sides`` is an array (measurements, ..., 2) of numerators and denominators.
    """
    ratios = sides[..., 0] / sides[..., 1]
    change: NDArray[Any] = ratios[0] - ratios[1:].sum(axis=0)
    return change


def sign_flip_p(differences: Sequence[Fraction]) -> float:
    """Return the exact two-sided p-value of a paired sign-flip test.

    If two agents are equally good, the sign of each task's difference is random (Fisher
    1935, section 21; Good 2005, *Permutation, Parametric and Bootstrap Tests of
    Hypotheses*, chapter 3). The p-value is the share of all 2^n choices of signs for
    which the sum of differences is at least as far from 0 as the observed sum. It is
    computed exactly, not by sampling. With one attempt per task, this is McNemar's
    exact test (1947).

    Args:
        differences: For each task, the value after minus the value before.

    Returns:
        The p-value, above 0; 1 if nothing differs.
    """
    import numpy as np

    scale = lcm(*(d.denominator for d in differences))
    sizes = [abs(int(d * scale)) for d in differences if d]
    seen = abs(int(sum(differences, Fraction(0)) * scale))
    chances = np.ones(1)  # probability of each sum, from the lowest to the highest
    for size in sizes:
        none = np.zeros(2 * size)
        chances = (np.append(none, chances) + np.append(chances, none)) / 2
    sums = np.arange(len(chances)) - sum(sizes)
    return min(1.0, float(chances[np.abs(sums) >= seen].sum()))
