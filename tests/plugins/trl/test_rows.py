"""A rollout as TRL takes it: one completion, whose mask fails closed."""

from collections.abc import Mapping, Sequence

import pytest

from agentgym.core.ledger import ROLE_NOT_TRAINED, TRAINED, Bucket
from agentgym.core.trajectory import ModelCall
from agentgym.plugins.trl.rollouts import CUT, OTHER_SEQUENCE, CompletionRow, row_of
from agentgym.train.batch import BatchBuilder
from tests.engines.local.rollouts import TRAINABLE, call, rollout
from tests.train.test_batch import CALL, PROMPT, labelled

END = 1
WORDS = [7, 1]
PARAMETERS = {"parameter_selection": True}


def row(
    calls: Sequence[ModelCall],
    reward: float | None = 1.0,
    most: int = 100,
    roles: Sequence[str] | None = None,
    trainable: Mapping[str, bool] = TRAINABLE,
) -> CompletionRow:
    builder = BatchBuilder("rloo", trainable, labelled, 0.0, roles)
    return row_of(rollout("it", reward, calls), builder, most, END)


def then(first: Sequence[int], *more: int) -> list[int]:
    """Return a prompt that continues PROMPT, an answer, and further tokens."""
    return [*PROMPT, *first, *more]


def test_calls_that_continue_each_other_are_one_completion() -> None:
    made = row([call(PROMPT, CALL, -1.0), call(then(CALL, 8, 8), CALL, -3.0)])
    assert made.prompt_ids == PROMPT
    assert made.completion_ids == [*CALL, 8, 8, *CALL]
    assert made.mask == [1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1]
    assert made.logprobs == [-1.0] * 6 + [0.0, 0.0] + [-3.0] * 6
    assert made.buckets == [TRAINED, TRAINED]


def test_only_from_the_first_trained_call_to_the_last_is_completion() -> None:
    first, last = [*PROMPT, *WORDS, 8], [*PROMPT, *WORDS, 8, *CALL, 8]
    calls = [call(PROMPT, WORDS), call(first, CALL), call(last, WORDS)]
    made = row(calls, trainable=PARAMETERS)
    assert made.prompt_ids == first
    assert (made.completion_ids, made.mask) == (CALL, [0, 0, 1, 0, 0, 0])
    assert [bucket.verb for bucket in made.buckets] == ["masked", "trained", "masked"]


def test_of_several_sequences_the_one_with_most_trained_tokens_is_given() -> None:
    other = [5, 5]
    calls = [call(other, CALL), call(PROMPT, CALL), call(then(CALL, 8), CALL)]
    made = row(calls)
    assert made.completion_ids == [*CALL, 8, *CALL]
    left = Bucket("masked", OTHER_SEQUENCE)
    assert made.buckets == [left, TRAINED, TRAINED]


def test_calls_beyond_the_longest_completion_are_left_out() -> None:
    made = row([call(PROMPT, CALL), call(then(CALL, 8), CALL)], most=12)
    assert (made.completion_ids, made.mask) == (CALL, [1] * 6)
    assert made.buckets == [TRAINED, Bucket("masked", CUT)]


@pytest.mark.parametrize(
    ("calls", "reward", "roles", "bucket"),
    [
        ([call(PROMPT, WORDS)], 1.0, None, Bucket("masked", "no trainable component")),
        ([call(PROMPT, CALL)], None, None, Bucket("dropped", "timed out")),
        ([call(PROMPT, CALL)], 1.0, ["b"], Bucket("masked", ROLE_NOT_TRAINED)),
        ([call([], [])], 1.0, None, Bucket("masked", "no token ids were recorded")),
    ],
)
def test_a_rollout_without_a_trained_call_is_masked_as_a_whole(
    calls: list[ModelCall], reward: float | None, roles: list[str], bucket: Bucket
) -> None:
    made = row(calls, reward, roles=roles, trainable=PARAMETERS)
    assert (made.completion_ids, made.mask, made.logprobs) == ([END], [0], [0.0])
    assert made.prompt_ids == (calls[0].prompt_ids or [END])
    assert made.buckets == [bucket]
