"""From scored rollouts to what is trained: sequences, trained tokens, the ledger."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentgym.core.components import is_trained, label_tokens
from agentgym.core.credit import (
    Algorithm,
    call_failures,
    group_advantages,
    normalise,
)
from agentgym.core.ledger import NO_VARIANCE, TRAINED, Bucket
from agentgym.core.trajectory import NO_REASON, ModelCall, RolloutStatus, Trajectory

Pieces = Callable[[Sequence[int]], list[str] | None]


@dataclass(frozen=True)
class TrainedToken:
    """A token that the loss covers.

    Attributes:
        position: In its sequence.
        logprob: When it was sampled.
        advantage: Of its model call.
    """

    position: int
    logprob: float
    advantage: float


@dataclass
class TrainingSequence:
    """Model calls of one rollout whose tokens continue each other exactly.

    Attributes:
        agent: Which agent of a team spoke.
        group: The rollout's group, by number.
        ids: Tokens of the last call's prompt and response.
        trained: The tokens of all its calls that the loss covers.
    """

    agent: str
    group: int
    ids: list[int]
    trained: list[TrainedToken] = field(default_factory=list)


@dataclass
class TrainingBatch:
    """Everything one update is made from.

    Attributes:
        sequences: With at least one trained token each.
        ledger: For each rollout id its model calls' buckets, in order.
        skipped_groups: Groups that teach nothing, their rewards being equal.
    """

    sequences: list[TrainingSequence] = field(default_factory=list)
    ledger: dict[str, list[Bucket]] = field(default_factory=dict)
    skipped_groups: int = 0

    @property
    def trained_tokens(self) -> int:
        """How many tokens the loss covers."""
        return sum(len(sequence.trained) for sequence in self.sequences)


@dataclass(frozen=True)
class BatchBuilder:
    """Builds a batch from a step's rollouts.

    Attributes:
        algorithm: Of the baseline.
        trainable: Which components the loss covers.
        pieces: Gives the text of each token of a response, None if it cannot.
        stop_ids: Tokens that end a response.
        failure_cost: What each failed tool call takes off its model call's advantage.
    """

    algorithm: Algorithm
    trainable: Mapping[str, bool]
    pieces: Pieces
    stop_ids: frozenset[int]
    failure_cost: float

    def build(
        self,
        groups: Sequence[Sequence[Trajectory]],
        call_rewards: Mapping[str, Sequence[float]],
    ) -> TrainingBatch:
        """Put every model call of ``groups`` into the batch and its ledger."""
        batch = TrainingBatch()
        credited: list[list[list[float] | None] | None] = []
        for group in groups:
            rewards = [_rewards(rollout, call_rewards) for rollout in group]
            charges = [
                [self.failure_cost * count for count in call_failures(rollout)]
                for rollout in group
            ]
            credited.append(group_advantages(rewards, self.algorithm, charges))
        scale = 1.0
        if self.algorithm == "rloo":
            every = [a for g in credited if g for calls in g if calls for a in calls]
            scale = normalise(every)
        for number, (group, advantages) in enumerate(
            zip(groups, credited, strict=True)
        ):
            if advantages is None:
                batch.skipped_groups += 1
            for index, rollout in enumerate(group):
                given = advantages[index] if advantages is not None else None
                if given is not None and any(given):
                    scaled = [advantage * scale for advantage in given]
                    self._add(batch, number, rollout, scaled)
                else:
                    reason = _left_out(rollout, call_rewards)
                    batch.ledger[rollout.rollout_id] = [reason] * len(
                        rollout.model_calls
                    )
        return batch

    def _add(
        self,
        batch: TrainingBatch,
        group: int,
        rollout: Trajectory,
        advantages: Sequence[float],
    ) -> None:
        """Merge a rollout's calls into as few sequences as their tokens allow."""
        sequences: list[TrainingSequence] = []
        entries: list[Bucket] = []
        for call, advantage in zip(rollout.model_calls, advantages, strict=True):
            positions = self._trained_positions(call)
            entries.append(positions if isinstance(positions, Bucket) else TRAINED)
            if isinstance(positions, Bucket):
                continue
            start = len(call.prompt_ids)
            sequence = _continued(sequences, call.prompt_ids)
            if sequence is None:
                sequence = TrainingSequence(call.agent, group, [])
                sequences.append(sequence)
            sequence.ids = [*call.prompt_ids, *call.response_ids]
            sequence.trained += [
                TrainedToken(start + p, call.logprobs[p], advantage) for p in positions
            ]
        batch.sequences += sequences
        batch.ledger[rollout.rollout_id] = entries

    def _trained_positions(self, call: ModelCall) -> list[int] | Bucket:
        """Return which response tokens are trained, or the bucket of a call without."""
        if not call.prompt_ids or not call.response_ids:
            return Bucket("masked", "no token ids were recorded")
        if len(call.logprobs) != len(call.response_ids) or not all(
            map(math.isfinite, call.logprobs)
        ):
            return Bucket("masked", "log-probabilities do not match the tokens")
        pieces = self.pieces(call.response_ids)
        if pieces is None:
            return Bucket("masked", "spans not found in the token ids")
        labels = label_tokens(pieces, ended=call.response_ids[-1] in self.stop_ids)
        positions = [
            index
            for index, components in enumerate(labels)
            if is_trained(components, self.trainable)
        ]
        return positions or Bucket("masked", "no trainable component")


def _rewards(
    rollout: Trajectory, call_rewards: Mapping[str, Sequence[float]]
) -> list[float] | None:
    """Return one finite reward per call, None if the rollout was not scored."""
    if rollout.status is RolloutStatus.DROPPED or rollout.reward is None:
        return None
    rewards = list(call_rewards.get(rollout.rollout_id, []))
    if len(rewards) != len(rollout.model_calls) or not all(map(math.isfinite, rewards)):
        return None
    return rewards


def _left_out(
    rollout: Trajectory, call_rewards: Mapping[str, Sequence[float]]
) -> Bucket:
    """Return the bucket of the calls of a rollout that is not trained."""
    if rollout.status is RolloutStatus.DROPPED:
        return Bucket("dropped", (rollout.reason or NO_REASON).kind)
    if _rewards(rollout, call_rewards) is None:
        return Bucket("dropped", "no reward for each model call")
    return Bucket("masked", NO_VARIANCE)


def _continued(
    sequences: Sequence[TrainingSequence], prompt: Sequence[int]
) -> TrainingSequence | None:
    """Return the longest sequence that ``prompt`` continues token by token."""
    found = [s for s in sequences if list(prompt[: len(s.ids)]) == s.ids]
    return max(found, key=lambda s: len(s.ids), default=None)
