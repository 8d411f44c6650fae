"""Significance: how likely a paired difference is if nothing changed."""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm


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
    total = sum(sizes)
    chances = np.zeros(2 * total + 1)  # of each sum, from -total to total
    chances[total] = 1.0
    for size in sizes:
        ahead, back = np.zeros_like(chances), np.zeros_like(chances)
        ahead[size:] = chances[: len(chances) - size]
        back[: len(chances) - size] = chances[size:]
        chances = (ahead + back) / 2
    sums = np.arange(-total, total + 1)
    return min(1.0, float(chances[np.abs(sums) >= seen].sum()))
