"""Estimates: values worked out by hand, and how wide the intervals are."""

from fractions import Fraction
from itertools import product

import pytest

from agentgym.evaluate.intervals import (
    UNMEASURED,
    Estimate,
    estimate_difference,
    estimate_ratio,
    pass_power_k,
    sign_flip_p,
)


@pytest.mark.parametrize(
    ("successes", "attempts", "k", "expected"),
    [(4, 4, 4, 1.0), (3, 4, 4, 0.0), (3, 4, 2, 0.5), (2, 4, 1, 0.5), (0, 4, 2, 0.0)],
)
def test_pass_power_k_is_the_share_of_k_subsets_that_succeed(
    successes: int, attempts: int, k: int, expected: float
) -> None:
    assert pass_power_k(successes, attempts, k) == pytest.approx(expected)


def test_attempts_at_one_task_are_not_taken_for_independent() -> None:
    by_task = estimate_ratio([(8.0 * (i % 2), 8.0) for i in range(20)])
    as_if_free = estimate_ratio([(float(i % 2), 1.0) for i in range(160)])
    assert by_task.high - by_task.low > 2 * (as_if_free.high - as_if_free.low)


def test_intervals_of_shares_match_published_values() -> None:
    """Agresti and Coull (1998): 5 of 10 and Student's quantile, by hand."""
    found = estimate_ratio([(float(i % 2), 1.0) for i in range(10)])
    half = 2.1610 * (0.25 / 13.8415) ** 0.5
    assert found.high - 0.5 == pytest.approx(half, abs=1e-3)
    found = estimate_ratio([(1.0, 1.0)] * 20)
    assert found.value == found.high == 1.0
    assert found.low == pytest.approx(0.806, abs=0.002)


@pytest.mark.parametrize("agree", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rate", [0.5, 0.8, 0.95])
def test_intervals_of_eight_tasks_hold_the_true_share(
    rate: float, agree: float
) -> None:
    """In 19 of 20 measurements, whether attempts at a task go alike or not."""
    import numpy as np

    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        shape = (1 - agree) / max(agree, 1e-9)
        chance = {0.0: np.full(8, rate), 1.0: (rng.random(8) < rate).astype(float)}.get(
            agree
        )
        if chance is None:
            chance = rng.beta(rate * shape, (1 - rate) * shape, 8)
        found = estimate_ratio([(float(n), 4.0) for n in rng.binomial(4, chance)])
        held += found.low <= rate <= found.high
    assert held >= 0.93 * 400


def test_bootstraps_of_few_tasks_are_expanded() -> None:
    """Of normal means over eight tasks, about as many intervals hold the truth."""
    import numpy as np

    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        costs = [(float(cost), 1.0) for cost in rng.normal(5, 1, 8)]
        found = estimate_ratio(costs, share=False)
        held += found.low <= 5 <= found.high
    assert held >= 0.92 * 200


def test_nothing_measured() -> None:
    assert estimate_ratio([]) == estimate_ratio([(0.0, 0.0)]) == UNMEASURED
    assert estimate_difference([], []) == UNMEASURED


def test_a_difference_is_the_difference_of_the_values() -> None:
    before = [(1.0, 4.0), (2.0, 4.0), (0.0, 4.0)]
    after = [(3.0, 4.0), (2.0, 4.0), (2.0, 2.0)]
    found = estimate_difference(before, after)
    assert found.value == pytest.approx(7 / 10 - 3 / 12)
    assert found.low <= found.value <= found.high


def test_pairing_takes_out_what_makes_tasks_hard() -> None:
    """Both sides swing wildly from task to task; their difference does not."""
    before = [(float(i % 10), 10.0) for i in range(60)]
    after = [(i % 10 + 1.0 + (i % 7 == 0), 11.0) for i in range(60)]
    paired = estimate_difference(before, after)
    width = paired.high - paired.low
    assert width < 0.7 * (estimate_ratio(before).high - estimate_ratio(before).low)


def test_identical_sides_differ_by_nothing_within_an_interval() -> None:
    pairs = [(float(i % 2), 1.0) for i in range(96)]
    found = estimate_difference(pairs, pairs)
    assert found.value == 0.0
    assert -found.low == found.high == pytest.approx(0.0287, abs=0.0005)


@pytest.mark.parametrize(
    "quarters", [[1, 2, -1, 0, 4], [0, 0], [4, 4, 4, 4], [-3, 1, 1, 1], [2]]
)
def test_p_is_the_share_of_sign_flips_as_extreme(quarters: list[int]) -> None:
    seen = abs(sum(quarters))
    flips = [
        abs(sum(s * q for s, q in zip(signs, quarters, strict=True)))
        for signs in product((1, -1), repeat=len(quarters))
    ]
    expected = sum(flip >= seen for flip in flips) / len(flips)
    found = sign_flip_p([Fraction(q, 4) for q in quarters])
    assert found == pytest.approx(expected)


def test_one_attempt_per_task_is_mcnemars_exact_test() -> None:
    """10 tasks got better, 2 worse: binomial, 2 * P(X <= 2 of 12) = 158 / 4096."""
    differences = [Fraction(1)] * 10 + [Fraction(-1)] * 2 + [Fraction(0)] * 30
    assert sign_flip_p(differences) == pytest.approx(158 / 4096)


def test_p_is_uniform_when_nothing_changed() -> None:
    """Of random pairs without a true difference, about a twentieth has p <= 0.05."""
    import numpy as np

    rng = np.random.default_rng(1)
    found = [
        sign_flip_p(
            [Fraction(int(d), 4) for d in rng.binomial(4, 0.5, (40, 2)) @ _SIDES]
        )
        for _ in range(400)
    ]
    assert 0.02 <= np.mean(np.array(found) <= 0.05) <= 0.08


_SIDES = [1, -1]


def test_an_estimate_is_used_as_the_number_it_estimates() -> None:
    found = Estimate(value=0.957, low=0.91, high=0.98, n=96)
    assert float(found) == 0.957
    assert f"{found:.1%}" == "95.7%"
    assert 0.95 <= found < 1
    assert found > Estimate(value=0.8, low=0.7, high=0.9, n=96)
    assert not found >= 0.96
    assert f"{found}" == str(found)


def test_what_was_not_measured_passes_no_threshold() -> None:
    assert not UNMEASURED < 0.5
    assert not UNMEASURED >= 0.0
    assert f"{UNMEASURED:.1%}" == "nan%"
