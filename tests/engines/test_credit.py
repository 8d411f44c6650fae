import statistics
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, Step, ToolCall, Trajectory
from agentgym.engines.credit import (
    REPEATED,
    batch_advantages,
    call_failures,
    clip_range,
    group_advantages,
    most_draws,
    token_weights,
)

REWARDS = [[1.0, 0.0, 0.5, 0.5], [0.2, 0.2, 0.2, 1.0]]
"""Means 0.5 and 0.4, deviations √0.125 and √0.12; of all 0.45 and √0.125."""


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        # 1 - 1/3, 0 - 2/3, 0.5 - 1.5/3, … and 0.2 - 1.4/3, 1 - 0.6/3; their root mean
        # square is √(1.742222/8) = 0.466667, by which all are divided.
        (
            "rloo",
            [1.428571, -1.428571, 0, 0, -0.571429, -0.571429, -0.571429, 1.714286],
        ),
        # ±0.5 / 0.353553, and -0.2 and 0.6 / 0.346410.
        ("grpo", [1.414214, -1.414214, 0, 0, -0.57735, -0.57735, -0.57735, 1.732051]),
        ("dapo", [1.414214, -1.414214, 0, 0, -0.57735, -0.57735, -0.57735, 1.732051]),
        ("dr_grpo", [0.5, -0.5, 0, 0, -0.2, -0.2, -0.2, 0.6]),
        # 0.55, -0.45, 0.05, 0.05, -0.25, …, 0.55 / 0.353553.
        (
            "reinforce++",
            [
                *(1.555635, -1.272792, 0.141421, 0.141421),
                *(-0.707107, -0.707107, -0.707107, 1.555635),
            ],
        ),
        ("ppo", [1.0, 0.0, 0.5, 0.5, 0.2, 0.2, 0.2, 1.0]),
    ],
)
def test_each_algorithm_by_hand(algorithm: Any, expected: list[float]) -> None:
    groups: list[Any] = [[[reward] for reward in group] for group in REWARDS]

    found = batch_advantages(groups, algorithm, none_of(groups))

    assert flat(found) == pytest.approx(expected, abs=1e-5)


def test_grpo_is_a_mean_over_rollouts_of_means_over_tokens() -> None:
    """Of 2 and 6 tokens: the mean over all 8 is then that of both means."""
    short, long = token_weights("grpo", [2, 6])

    assert (short, long) == pytest.approx((2.0, 2 / 3))
    for first, second in ((1.0, -1.0), (0.3, 0.8)):
        over_tokens = (2 * short * first + 6 * long * second) / 8
        assert over_tokens == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "dapo", "reinforce++", "ppo"])
def test_in_all_others_length_does_not_count(name: Any) -> None:
    assert token_weights(name, [2, 6]) == [1.0, 1.0]
    config = TrainingConfig.create(algorithm=name, engine="verl")
    assert most_draws(config) == (10 if name == "dapo" else 2)
    in_turn = config.replaced(task_choice="uniform")
    assert most_draws(in_turn) == (10 if name == "dapo" else 1)


def test_ppo_has_a_signal_wherever_there_is_a_reward() -> None:
    """Equal rewards and a single attempt too: its baseline is the value model's."""
    groups: list[Any] = [[[0.0], [0.0]], [[0.5, 0.5], None], [None]]
    charges = [[[0.0], [0.2]], [[0.0, 0.3], []], [[]]]

    found = batch_advantages(groups, "ppo", charges)

    assert found == [[[0.0], [-0.2]], [[0.5, 0.2], None], None]


def test_reinforce_pp_compares_with_the_whole_batch() -> None:
    """So attempts that all fail at a task that others solve are taught by that."""
    groups: list[Any] = [[[0.0, 0.0], [0.0]], [[1.0], None], [[1.0], [0.2]]]
    found = batch_advantages(groups, "reinforce++", none_of(groups))

    rewards = [0.0, 0.0, 1.0, 1.0, 0.2]
    mean, spread = statistics.mean(rewards), statistics.pstdev(rewards)
    scaled = [(r - mean) / spread for r in (0, 0, 0, 1, 1, 0.2)]
    assert flat(found) == pytest.approx(scaled)
    assert found[1] is not None
    assert found[1][1] is None

    charged = [[[0.0, 0.5], [0.0]], [[0.0], [0.0]], [[0.0], [0.0]]]
    less = batch_advantages(groups, "reinforce++", charged)
    assert less[0] is not None
    assert found[0] is not None
    assert less[0][0] == [found[0][0][0], found[0][0][1] - 0.5]  # type: ignore[index]
    assert less[1:] == found[1:]


def test_reinforce_pp_of_equal_rewards_has_only_charges() -> None:
    groups: list[Any] = [[[1.0], [1.0]], [[1.0], [1.0]]]
    assert batch_advantages(groups, "reinforce++", none_of(groups)) == [None, None]
    charges = [[[0.5], [0.0]], [[0.0], [0.0]]]
    found = batch_advantages(groups, "reinforce++", charges)
    assert found == [[[-0.5], [0.0]], None]


def test_dapo_alone_clips_further_above() -> None:
    ranges = {clip_range(name) for name in ("rloo", "grpo", "dr_grpo", "reinforce++")}
    assert ranges == {(0.2, 0.2)}
    assert clip_range("dapo") == (0.2, 0.28)


def none_of(groups: list[Any]) -> list[list[list[float]]]:
    return [[[0.0] * len(calls or ()) for calls in group] for group in groups]


def flat(found: list[Any]) -> list[float]:
    return [a for group in found for calls in group or () for a in calls or ()]


@pytest.mark.parametrize("algorithm", ["rloo", "grpo", "dr_grpo", "dapo"])
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


@pytest.mark.parametrize("algorithm", ["rloo", "grpo", "dr_grpo", "dapo"])
def test_a_charge_is_taken_off_its_own_call_and_nothing_gains_by_it(
    algorithm: str,
) -> None:
    rewards, none = [[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    plain = group_advantages(rewards, algorithm, none)  # type: ignore[arg-type]
    charged = group_advantages(
        rewards,
        algorithm,  # type: ignore[arg-type]
        [[0.0, 0.5], [0.0, 0.0]],
    )

    assert plain == group_advantages(rewards, algorithm)  # type: ignore[arg-type]
    assert plain is not None
    assert plain[0] is not None
    assert charged == [[plain[0][0], plain[0][1] - 0.5], plain[1]]


@pytest.mark.parametrize("algorithm", ["rloo", "grpo", "dr_grpo", "dapo"])
def test_attempts_that_all_make_the_same_mistake_teach_not_to(algorithm: str) -> None:
    charges = [[0.0, 0.5]] * 4
    advantages = group_advantages([[0.3, 0.3]] * 4, algorithm, charges)  # type: ignore[arg-type]

    assert advantages == [[0.0, -0.5]] * 4


def test_a_charge_of_a_rollout_without_reward_counts_for_nothing() -> None:
    charges = [[0.0], [0.0], [0.5]]

    assert group_advantages([[1.0], [1.0], None], "rloo", charges) is None


def test_calls_of_one_rollout_keep_their_own_rewards() -> None:
    advantages = group_advantages([[1.0, 0.0], [0.0, 0.0]], "rloo")

    assert advantages == [[1.0, 0.0], [-0.5, -0.5]]


def failing(path: str, *, result: str = "Error: no such file.") -> list[Step]:
    return [
        ModelCall(),
        ToolCall(
            name="read_file",
            arguments={"path": path},
            outcome=ToolOutcome.RAISED,
            result=result,
        ),
    ]


WORKING: list[Step] = [ModelCall(), ToolCall(name="list_files", arguments={})]


def episode(*steps: list[Step], reward: float | None = 0.5) -> Trajectory:
    return Trajectory(
        rollout_id="r",
        scenario="coding",
        task_id="t",
        steps=[step for part in steps for step in part],
        reward=reward,
    )


def test_a_failed_call_made_again_counts_more() -> None:
    again = episode(failing("a"), failing("a"), failing("a"), [ModelCall()])

    assert call_failures(again) == [1, REPEATED, REPEATED, 0]


@pytest.mark.parametrize(
    "second",
    [
        failing("b"),
        failing("a", result="Error: it is a folder."),
        [*WORKING, *failing("a")],
        [ModelCall(), ToolCall(name="read_file", arguments={"path": "a"})],
    ],
    ids=["other arguments", "other result", "a call that worked between", "it works"],
)
def test_what_is_no_mere_repetition_counts_once(second: list[Step]) -> None:
    worked = second[-1] == ToolCall(name="read_file", arguments={"path": "a"})

    assert sum(call_failures(episode(failing("a"), second))) == (1 if worked else 2)


def test_calls_of_one_answer_are_counted_together() -> None:
    twice = [*failing("a"), *failing("a")[1:]]

    assert call_failures(episode(twice, twice)) == [1 + REPEATED, 2 * REPEATED]
