import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.credit import group_advantages, normalise


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    advantages = group_advantages([[1.0, 1.0], [0.0], [0.5]], "rloo")

    assert advantages == [[0.75, 0.75], [-0.75], [0.0]]


def test_grpo_divides_by_the_groups_deviation() -> None:
    rewards = [1.0, 0.0, 0.5, 0.1]
    advantages = group_advantages([[r] for r in rewards], "grpo")

    deviation = statistics.pstdev(rewards)
    expected = [(r - statistics.mean(rewards)) / deviation for r in rewards]
    assert advantages is not None
    assert [a[0] for a in advantages if a] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_a_rollout_without_reward_is_no_part_of_the_baseline(algorithm: str) -> None:
    with_gap = group_advantages([[1.0], None, [0.0]], algorithm)  # type: ignore[arg-type]
    without = group_advantages([[1.0], [0.0]], algorithm)  # type: ignore[arg-type]

    assert with_gap is not None
    assert without is not None
    assert with_gap[1] is None
    assert [with_gap[0], with_gap[2]] == without


@pytest.mark.parametrize(
    "rewards", [[[0.3], [0.3]], [[1.0], None], [None, None], [], [[1.0], []]]
)
def test_a_group_that_teaches_nothing_is_skipped(rewards: list[list[float]]) -> None:
    assert group_advantages(rewards, "rloo") is None


def test_calls_of_one_rollout_keep_their_own_rewards() -> None:
    advantages = group_advantages([[1.0, 0.0], [0.0, 0.0]], "rloo")

    assert advantages == [[1.0, 0.0], [-0.5, -0.5]]


def test_normalise_gives_a_root_mean_square_of_one() -> None:
    values = [0.1, -0.3, 0.2]
    factor = normalise(values)

    assert sum((factor * v) ** 2 for v in values) / 3 == pytest.approx(1)
    assert normalise([]) == normalise([0.0, 0.0]) == 1.0


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=16))
def test_advantages_of_a_group_add_up_to_nothing(rewards: list[float]) -> None:
    advantages = group_advantages([[r] for r in rewards], "rloo")

    if advantages is not None:
        total = sum(calls[0] for calls in advantages if calls)
        assert total == pytest.approx(0, abs=1e-9)
