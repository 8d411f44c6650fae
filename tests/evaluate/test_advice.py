"""What is said of a baseline before training starts."""

import pytest

from agentgym.core.trajectory import ModelCall, Reason, RolloutStatus, Trajectory
from agentgym.evaluate.advice import doubts, overflow_words
from agentgym.evaluate.metrics import Metrics, TaskResult


def baseline(*rewards: tuple[float, ...], solved: float = 1.0) -> Metrics:
    """Return a measurement of tasks by the rewards of the attempts at each."""
    return Metrics.of_tasks(
        [
            TaskResult(
                task_id=str(number),
                family=f"family {number}",
                attempts=len(earned),
                successes=sum(reward >= solved for reward in earned),
                sums={"pass_1": (float(sum(r >= solved for r in earned)), len(earned))},
                rewards=earned,
            )
            for number, earned in enumerate(rewards)
        ]
    )


def test_a_base_that_solves_some_tasks_raises_no_doubt() -> None:
    assert doubts(baseline(*[(0.0, 1.0), (0.0, 0.0)] * 8)) == []


def test_nothing_solved_is_said_with_what_can_be_learnt() -> None:
    found = doubts(baseline(*[(0.0, 0.2), (0.0, 0.0)] * 8))
    assert "Not one of 32 attempts at 16 held-out tasks succeeded" in found[0]
    assert "partial credit" in found[0]
    assert found[1].startswith("Training has a signal in 8 of 16 families")
    assert len(found) == 2


def test_all_solved_is_nothing_to_learn() -> None:
    (found,) = doubts(baseline(*[(1.0, 1.0)] * 8))
    assert "All 16 attempts at 8 held-out tasks succeeded" in found


def test_rewards_that_never_differ_are_said() -> None:
    (found,) = doubts(baseline(*[(1.0,) * 4, (0.0,) * 4] * 16))
    assert "No two attempts at the same task were rewarded differently" in found
    assert len(doubts(baseline(*[(0.0, 0.0)] * 8))) == 2


@pytest.mark.parametrize(
    "few",
    [[(0.0,)] * 15, [(1.0,)] * 15, [(1.0,), (0.0,)] * 8, [(1.0, 1.0), (0.0, 0.0)] * 8],
    ids=["none solved", "all solved", "single attempts", "alike by chance"],
)
def test_what_so_few_attempts_cannot_tell_is_not_said(
    few: list[tuple[float, ...]],
) -> None:
    assert doubts(baseline(*few)) == []


def test_prompts_that_the_model_cannot_read_are_said() -> None:
    def attempt(kind: str | None, calls: int) -> Trajectory:
        return Trajectory(
            rollout_id="a",
            scenario="s",
            task_id="t",
            steps=[ModelCall()] * calls,
            status=RolloutStatus.FAILED,
            reward=0.0,
            reason=None if kind is None else Reason(kind=kind),
        )

    usual = [attempt(None, 2), attempt("max_turns", 9)] * 50
    full = [attempt("context_overflow", 0)] * 3 + [attempt("context_overflow", 4)]
    said = overflow_words([*usual, *full], "nano")
    assert said.startswith("4 of 104 attempts ended since the prompt was longer than ")
    assert "nano reads, 3 of them before the model's first answer: they" in said
    assert overflow_words([*usual, full[0]], "nano") == ""
    assert overflow_words(usual, "nano") == overflow_words([], "nano") == ""
