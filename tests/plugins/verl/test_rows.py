"""From recorded rollouts to rows, and to the tensors that verl's workers take."""

from collections.abc import Sequence

import torch

from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.engines.base import TrainingBatch
from agentgym.plugins.verl.rows import UpdateRow, divisible, rows_of, to_tensors
from agentgym.train.batch import BatchBuilder
from tests.engines.local.rollouts import TRAINABLE, broadcast, rollout
from tests.train.test_batch import CALL, PROMPT, labelled


def called(agent: str = "", prompt: Sequence[int] = PROMPT) -> ModelCall:
    logprobs = [-0.1 * (i + 1) for i in range(len(CALL))]
    return ModelCall(
        agent=agent, prompt_ids=list(prompt), response_ids=CALL, logprobs=logprobs
    )


def batch_of(*group: Trajectory, roles: Sequence[str] | None = None) -> TrainingBatch:
    builder = BatchBuilder("rloo", TRAINABLE, labelled, 0.0, roles)
    return builder.build([group], broadcast).batch


def test_a_row_has_the_positions_that_the_loss_covers_and_nothing_after() -> None:
    again = called(prompt=[*PROMPT, *CALL, 8, 8])
    batch = batch_of(
        rollout("a", 1.0, [called(), again]), rollout("b", 0.0, [called()])
    )
    rows = rows_of(batch)
    assert [len(row["ids"]) for row in rows] == [17, 9]
    for row, sequence in zip(rows, batch.sequences, strict=True):
        assert row["ids"] == sequence.ids[: len(row["ids"])]
        assert row["start"] == row["trained"][0][0]
        assert len(row["trained"]) == len(sequence.trained)
    # Tokens of the tool's result between the calls are read and not learned.
    positions = {position for position, _, _ in rows[0]["trained"]}
    assert positions.isdisjoint({9, 10})


def test_tensors_are_padded_left_and_right_and_cover_only_what_is_trained() -> None:
    rows: list[UpdateRow] = [
        {"ids": [1, 2, 3, 4], "start": 2, "trained": [(3, -0.5, 2.0)]},
        {"ids": [5, 6, 7], "start": 1, "trained": [(1, -1.0, -1.0), (2, -2.0, 0.5)]},
    ]
    made = to_tensors(rows)
    assert made["prompts"].tolist() == [[1, 2], [0, 5]]
    assert made["responses"].tolist() == [[3, 4], [6, 7]]
    assert made["input_ids"].tolist() == [[1, 2, 3, 4], [0, 5, 6, 7]]
    assert made["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3], [0, 0, 1, 2]]
    assert made["response_mask"].tolist() == [[0, 1], [1, 1]]
    assert made["advantages"].tolist() == [[0.0, 2.0], [-1.0, 0.5]]
    assert made["old_log_probs"].tolist() == [[0.0, -0.5], [-1.0, -2.0]]
    assert made["advantages"].dtype == torch.float32


def test_empty_rows_make_a_batch_divisible_and_are_not_trained() -> None:
    rows: list[UpdateRow] = [
        {"ids": [1, 2], "start": 1, "trained": [(1, -0.5, 1.0)]}
    ] * 3
    padded = divisible(rows, 4)
    assert len(padded) == 4
    assert to_tensors(padded)["response_mask"].sum() == 3
    assert divisible(rows, 3) == rows
