"""From scored rollouts to what is trained: sequences, trained tokens, the ledger."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentgym.core.components import is_trained, label_tokens
from agentgym.core.credit import Algorithm, call_failures, group_advantages, normalise
from agentgym.core.ledger import NO_VARIANCE, TRAINED, Bucket
from agentgym.core.trajectory import NO_REASON, ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import TrainedToken, TrainingBatch, TrainingSequence

Pieces = Callable[[Sequence[int]], list[str] | None]
Broadcast = Callable[[Trajectory], Sequence[float]]
"""Gives a scored rollout's reward to each of its model calls."""


@dataclass
class Credited:
    """A step's rollouts made into a batch.

    Attributes:
        groups: The rollouts, by task.
        batch: What the engine learns from.
        ledger: For each rollout id the bucket of each model call, in order.
        skipped_groups: Groups that teach nothing, their rewards being equal.
    """

    groups: Sequence[Sequence[Trajectory]]
    batch: TrainingBatch = field(default_factory=TrainingBatch)
    ledger: dict[str, list[Bucket]] = field(default_factory=dict)
    skipped_groups: int = 0

    @property
    def rollouts(self) -> list[Trajectory]:
        """The rollouts of all groups."""
        return [rollout for group in self.groups for rollout in group]

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

    def build(
        self, groups: Sequence[Sequence[Trajectory]], broadcast: Broadcast
    ) -> Credited:
        """Put every model call of ``groups`` into the batch and its ledger."""
        made = Credited(groups)
        rewards = [[_rewards(rollout, broadcast) for rollout in g] for g in groups]
        credited = [
            group_advantages(given, self.algorithm, [self._charges(r) for r in group])
            for group, given in zip(groups, rewards, strict=True)
        ]
        scale = 1.0
        if self.algorithm == "rloo":
            every = [a for g in credited if g for calls in g if calls for a in calls]
            scale = normalise(every)
        for number, (group, given, advantages) in enumerate(
            zip(groups, rewards, credited, strict=True)
        ):
            made.skipped_groups += advantages is None
            for index, rollout in enumerate(group):
                earned = advantages[index] if advantages is not None else None
                if earned is not None and any(earned):
                    scaled = [advantage * scale for advantage in earned]
                    entries = self._add(made.batch, number, rollout, scaled)
                else:
                    reason = _left_out(rollout, given[index])
                    entries = [reason] * len(rollout.model_calls)
                made.ledger[rollout.rollout_id] = entries
        return made

    def _charges(self, rollout: Trajectory) -> list[float]:
        return [self.failure_cost * count for count in call_failures(rollout)]

    def _add(
        self,
        batch: TrainingBatch,
        group: int,
        rollout: Trajectory,
        advantages: Sequence[float],
    ) -> list[Bucket]:
        """Add what is trained of a rollout's calls, and say where each went."""
        trained: list[tuple[ModelCall, Sequence[int], float]] = []
        entries: list[Bucket] = []
        for call, advantage in zip(rollout.model_calls, advantages, strict=True):
            positions = self._trained_positions(call)
            if isinstance(positions, Bucket):
                entries.append(positions)
            else:
                entries.append(TRAINED)
                trained.append((call, positions, advantage))
        batch.sequences += merged(trained, group)
        return entries

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


def merged(
    calls: Iterable[tuple[ModelCall, Sequence[int], float]], group: int
) -> list[TrainingSequence]:
    """Merge a rollout's calls into as few sequences as their tokens allow.

    Args:
        calls: Each with the places of its response's trained tokens, and their
            advantage.
        group: The rollout's group, by number.
    """
    sequences: list[TrainingSequence] = []
    for call, positions, advantage in calls:
        start = len(call.prompt_ids)
        sequence = _continued(sequences, call.prompt_ids)
        if sequence is None:
            sequence = TrainingSequence(call.agent, group, [])
            sequences.append(sequence)
        sequence.ids = [*call.prompt_ids, *call.response_ids]
        sequence.trained += [
            TrainedToken(start + p, call.logprobs[p], advantage) for p in positions
        ]
    return sequences


def _rewards(rollout: Trajectory, broadcast: Broadcast) -> list[float] | None:
    """Return one finite reward per call, None if the rollout was not scored."""
    if rollout.status is RolloutStatus.DROPPED or rollout.reward is None:
        return None
    rewards = list(broadcast(rollout))
    if len(rewards) != len(rollout.model_calls) or not all(map(math.isfinite, rewards)):
        return None
    return rewards


def _left_out(rollout: Trajectory, rewards: Sequence[float] | None) -> Bucket:
    """Return the bucket of the calls of a rollout that is not trained."""
    if rollout.status is RolloutStatus.DROPPED:
        return Bucket("dropped", (rollout.reason or NO_REASON).kind)
    if rewards is None:
        return Bucket("dropped", "no reward for each model call")
    return Bucket("masked", NO_VARIANCE)


def _continued(
    sequences: Sequence[TrainingSequence], prompt: Sequence[int]
) -> TrainingSequence | None:
    """Return the longest sequence that ``prompt`` continues token by token."""
    found = [s for s in sequences if list(prompt[: len(s.ids)]) == s.ids]
    return max(found, key=lambda s: len(s.ids), default=None)
