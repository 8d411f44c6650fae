"""From scored rollouts to what is trained: sequences, trained tokens, the ledger."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from agentgym.core.components import is_trained, label_tokens
from agentgym.core.config import TrainingConfig
from agentgym.core.credit import (
    Algorithm,
    call_failures,
    group_advantages,
    normalise,
)
from agentgym.core.ledger import NO_VARIANCE, TRAINED, Bucket
from agentgym.core.trajectory import NO_REASON, ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import Engine, TrainedToken, TrainingBatch, TrainingSequence

Pieces = Callable[[Sequence[int]], list[str] | None]


@dataclass
class Credited:
    """A step's rollouts made into a batch.

    Attributes:
        batch: What the engine learns from.
        ledger: For each rollout id the bucket of each model call, in order.
        skipped_groups: Groups that teach nothing, their rewards being equal.
    """

    batch: TrainingBatch = field(default_factory=TrainingBatch)
    ledger: dict[str, list[Bucket]] = field(default_factory=dict)
    skipped_groups: int = 0

    def refuse(self, reason: str) -> None:
        """Mask what was to be trained: the engine has left its weights as they were."""
        masked = Bucket("masked", reason)
        for buckets in self.ledger.values():
            buckets[:] = [masked if b == TRAINED else b for b in buckets]


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

    @classmethod
    def of(
        cls, engine: Engine, config: TrainingConfig, trainable: Mapping[str, bool]
    ) -> Self:
        """Return the builder of batches for an engine."""
        return cls(
            config.algorithm,
            trainable,
            engine.pieces,
            engine.stop_ids,
            config.failure_cost,
        )

    def build(
        self,
        groups: Sequence[Sequence[Trajectory]],
        call_rewards: Mapping[str, Sequence[float]],
    ) -> Credited:
        """Put every model call of ``groups`` into the batch and its ledger."""
        made = Credited()
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
                made.skipped_groups += 1
            for index, rollout in enumerate(group):
                given = advantages[index] if advantages is not None else None
                if given is not None and any(given):
                    scaled = [advantage * scale for advantage in given]
                    self._add(made, number, rollout, scaled)
                else:
                    reason = _left_out(rollout, call_rewards)
                    made.ledger[rollout.rollout_id] = [reason] * len(
                        rollout.model_calls
                    )
        return made

    def _add(
        self,
        made: Credited,
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
        made.batch.sequences += sequences
        made.ledger[rollout.rollout_id] = entries

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
