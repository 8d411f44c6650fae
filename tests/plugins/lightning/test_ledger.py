"""What their trainer's rules do to each rollout."""

from typing import Any

from agentgym.core.ledger import NO_VARIANCE
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import OwnCredit
from agentgym.plugins.lightning.engine import (
    LEFT_OUT,
    REPEATED,
    TOO_LONG_PROMPT,
    own_credit,
)


def call(prompt: list[int], response: list[int], agent: str = "agent") -> ModelCall:
    logprobs = [-0.5] * len(response)
    return ModelCall(
        agent=agent, prompt_ids=prompt, response_ids=response, logprobs=logprobs
    )


def rollout(*calls: ModelCall, name: str = "r", scored: bool = True) -> Trajectory:
    status = RolloutStatus.SUCCEEDED if scored else RolloutStatus.DROPPED
    return Trajectory(
        rollout_id=name,
        scenario="coding",
        task_id="t",
        family="f",
        level=1,
        group="g",
        steps=list(calls),
        status=status,
    )


def row(
    prompt: int, response: int, *, name: str = "r", advantage: float = -1.0
) -> dict[str, Any]:
    made = {"rollout": name, "prompt": prompt, "response": response}
    return {**made, "reward": 0.5, "advantage": advantage}


def credit(*rollouts: Trajectory, rows: list[dict[str, Any]]) -> OwnCredit:
    return own_credit(rollouts, rows, limit=6, fill_value=0.0)


def reasons(found: OwnCredit, name: str = "r") -> list[str]:
    return [bucket.reason or bucket.verb for bucket in found.ledger[name]]


FIRST = call([1, 2], [3])
SECOND = call([1, 2, 3, 4], [5, 6], agent="another")


def test_calls_that_continue_each_other_are_one_row_of_all_roles() -> None:
    found = credit(rollout(FIRST, SECOND), rows=[row(2, 4)])
    assert reasons(found) == ["trained", "trained"]
    [sequence] = found.sequences
    assert [token.position for token in sequence.trained] == [2, 4, 5]
    assert {token.advantage for token in sequence.trained} == {-1.0}
    assert sequence.calls == [FIRST, SECOND]


def test_a_call_with_other_tokens_before_it_is_a_row_of_its_own() -> None:
    other = call([7, 8], [9])
    found = credit(rollout(FIRST, other), rows=[row(2, 1)])
    assert reasons(found) == ["trained", LEFT_OUT]
    both = credit(rollout(FIRST, other), rows=[row(2, 1), row(2, 1)])
    assert reasons(both) == ["trained", "trained"]


def test_rows_beyond_a_multiple_of_the_mini_batch_are_named() -> None:
    kept, lost = rollout(FIRST, name="kept"), rollout(FIRST, name="lost")
    found = credit(kept, lost, rows=[row(2, 1, name="kept")])
    assert reasons(found, "lost") == [LEFT_OUT]
    counted = found.remarks["lost"]["counted"]
    assert (counted["rows"], counted["trained_rows"]) == (1, 0)
    assert counted["reward"] is None


def test_of_equal_prompts_the_last_answer_counts() -> None:
    found = credit(rollout(call([1, 2], [9]), FIRST), rows=[row(2, 1)])
    assert reasons(found) == [REPEATED, "trained"]


def test_a_crashed_rollout_is_trained_with_the_fill_value() -> None:
    found = credit(rollout(FIRST, scored=False), rows=[row(2, 1)])
    assert reasons(found) == ["trained"]
    counted = found.remarks["r"]["counted"]
    assert counted["crashed"]
    assert counted["filled"] == 0.0


def test_a_row_whose_group_earned_the_same_adds_nothing() -> None:
    found = credit(rollout(FIRST), rows=[row(2, 1, advantage=0.0)])
    assert reasons(found) == [NO_VARIANCE]
    assert found.remarks["r"]["counted"]["trained_rows"] == 1
    assert not found.sequences


def test_a_long_prompt_is_left_out_and_a_long_answer_is_cut() -> None:
    long = credit(rollout(call([0] * 7, [1])), rows=[])
    assert reasons(long) == [TOO_LONG_PROMPT]
    cut = credit(rollout(call([1, 2], [3] * 9)), rows=[row(2, 6)])
    assert reasons(cut) == ["trained"]
    assert len(cut.sequences[0].trained) == 6
