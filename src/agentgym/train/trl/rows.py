"""Convert a rollout to TRL's data: one prompt, one completion, and a mask."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.core.ledger import ROLE_NOT_TRAINED, TRAINED, Bucket
from agentgym.core.trajectory import NO_REASON, ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import TrainingSequence
from agentgym.train.batch import BatchBuilder, Places, merged

OTHER_SEQUENCE = "not in the sequence that its rollout is trained by"
CUT = "beyond max_completion_length"


@dataclass(frozen=True)
class CompletionRow:
    """One rollout as TRL's trainer expects it from its ``rollout_func``.

    Attributes:
        prompt_ids: Token ids before the first trained model call's response; not empty.
        completion_ids: Token ids after the prompt, up to the last trained call:
            responses, with tool results and other messages between them; not empty.
        logprobs: Natural-log probability of each of ``completion_ids`` when sampled;
            0.0 where ``mask`` is 0.
        mask: 1 for a token that the loss covers, else 0.
        buckets: How each model call was used (trained, masked or dropped), in order.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    mask: list[int]
    buckets: list[Bucket]


def row_of(
    rollout: Trajectory, builder: BatchBuilder, most: int, end: int
) -> CompletionRow:
    """Return a rollout's row: the sequence of calls with the most trained tokens.

    A sequence is a series of calls, each of which continues the tokens of the one
    before. A rollout may have several, for example one for each role of a team. TRL
    takes one completion per rollout, so the other sequences are left out, and also
    calls that end after ``most`` completion tokens. Without a trained call, the whole
    row is masked, and its completion is the end token ``end``.
    """
    calls = rollout.model_calls
    found = [_places(rollout, call, builder) for call in calls]
    trained = [
        (call, places, 0.0)
        for call, places in zip(calls, found, strict=True)
        if not isinstance(places, Bucket)
    ]
    sequences = merged(trained, group=0)
    chosen = max(sequences, key=lambda s: _trained_within(s, most), default=None)
    kept = [] if chosen is None else _kept(chosen, most)
    is_kept = set(map(id, kept))
    is_cut = set() if chosen is None else set(map(id, chosen.calls)) - is_kept
    buckets = [
        places
        if isinstance(places, Bucket)
        else TRAINED
        if id(call) in is_kept
        else Bucket("masked", CUT if id(call) in is_cut else OTHER_SEQUENCE)
        for call, places in zip(calls, found, strict=True)
    ]
    if chosen is None or not kept:
        prompt = next((c.prompt_ids for c in calls if c.prompt_ids), [end])
        return CompletionRow(list(prompt), [end], [0.0], [0], buckets)
    start, stop = len(kept[0].prompt_ids), _end(kept[-1])
    mask, logprobs = [0] * (stop - start), [0.0] * (stop - start)
    for token in chosen.trained:
        if token.position < stop:
            mask[token.position - start] = 1
            logprobs[token.position - start] = token.logprob
    ids = chosen.ids
    return CompletionRow(ids[:start], ids[start:stop], logprobs, mask, buckets)


def _places(
    rollout: Trajectory, call: ModelCall, builder: BatchBuilder
) -> Places | Bucket:
    """Return the positions of a call's trained tokens; if none, the reason."""
    if rollout.status is RolloutStatus.DROPPED or rollout.reward is None:
        return Bucket("dropped", (rollout.reason or NO_REASON).kind)
    if builder.train_roles is not None and call.agent not in builder.train_roles:
        return Bucket("masked", ROLE_NOT_TRAINED)
    return builder.trained_positions(call)


def _end(call: ModelCall) -> int:
    return len(call.prompt_ids) + len(call.response_ids)


def _kept(sequence: TrainingSequence, most: int) -> Sequence[ModelCall]:
    """Return the calls that end within the first ``most`` tokens of the completion.

    The completion begins with the response of the first trained call.
    """
    start = len(sequence.calls[0].prompt_ids)
    return [call for call in sequence.calls if _end(call) - start <= most]


def _trained_within(sequence: TrainingSequence, most: int) -> int:
    limit = len(sequence.calls[0].prompt_ids) + most
    return sum(token.position < limit for token in sequence.trained)
