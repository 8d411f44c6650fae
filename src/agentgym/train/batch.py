"""Turn scored rollouts into training data: sequences, trained tokens, the ledger."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from agentgym.core.components import Components, components_of, is_trained
from agentgym.core.config import Algorithm, TrainingConfig
from agentgym.core.ledger import (
    FORCED,
    NO_COMPARISON,
    NO_VARIANCE,
    NOT_REPLAYED,
    ROLE_NOT_TRAINED,
    TOO_LONG,
    TRAINED,
    Bucket,
)
from agentgym.core.trajectory import NO_REASON, ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import (
    Allowed,
    TrainedToken,
    TrainingBatch,
    TrainingSequence,
)
from agentgym.engines.credit import batch_advantages, call_failures
from agentgym.errors import MissingExtraError, UsageError
from agentgym.models.folder import model_source
from agentgym.scenarios.base import Scenario

TOOL_CALLS = components_of("calls")
"""The components that are trained by default."""
Label = Callable[[ModelCall], list[Components] | None]
"""Gives the components of each token of a call's response."""
Replay = Callable[[ModelCall], Sequence[Allowed] | None]
"""Gives the tokens that a call's grammar allowed, at each token of its response."""
Places = Mapping[int, Allowed | None]
"""Places of trained tokens; with each, the tokens that its response's grammar allowed.
"""
Broadcast = Callable[[Trajectory], Sequence[float]]
"""Gives a scored rollout's reward to each of its model calls."""


@dataclass
class Credited:
    """A step's rollouts made into a batch.

    Attributes:
        groups: The rollouts, by task.
        batch: The engine's training data.
        ledger: For each rollout id the bucket of each model call, in order.
        skipped_groups: Groups without a training signal, as their rewards are equal.
    """

    groups: Sequence[Sequence[Trajectory]]
    batch: TrainingBatch = field(default_factory=TrainingBatch)
    ledger: dict[str, list[Bucket]] = field(default_factory=dict)
    skipped_groups: int = 0

    @property
    def rollouts(self) -> list[Trajectory]:
        """The rollouts of all groups."""
        return [rollout for group in self.groups for rollout in group]

    @property
    def sequences(self) -> float:
        """Sequences that the calls of a rollout make, on average.

        One per agent is as few as there can be.
        """
        known = [made for made in self.rollouts if made.model_calls]
        count = sum(len(_sequences(made.model_calls)) for made in known)
        return count / max(1, len(known))

    @property
    def breaks(self) -> int:
        """Calls that continue a conversation, and not its tokens."""
        return sum(_count_breaks(made.model_calls) for made in self.rollouts)

    def mask(self, sequences: Sequence[TrainingSequence], reason: str) -> None:
        """Mask the trained calls of sequences that the engine's loss has left out."""
        left_out = {id(call) for sequence in sequences for call in sequence.calls}
        masked = Bucket("masked", reason)
        for rollout in self.rollouts:
            buckets = self.ledger[rollout.rollout_id]
            for place, call in enumerate(rollout.model_calls):
                if id(call) in left_out and buckets[place] == TRAINED:
                    buckets[place] = masked

    def refuse(self, reason: str) -> None:
        """Mask the trained calls: the engine has left its weights unchanged."""
        masked = Bucket("masked", reason)
        for buckets in self.ledger.values():
            buckets[:] = [masked if b == TRAINED else b for b in buckets]


@dataclass(frozen=True)
class BatchBuilder:
    """Builds a batch from a step's rollouts.

    Attributes:
        algorithm: Of the baseline.
        trainable: Which components the loss covers.
        label: Gives the components of each token of a call's response, None if it
            cannot.
        failure_cost: Penalty of each failed tool call on its model call's advantage.
        train_roles: Who of a team is trained; None: all.
        longest: Most tokens of prompt and response of a trained call; None: any.
        replay: Gives the tokens that a call's grammar allowed; None if the engine
            cannot: calls with a grammar are then masked.
    """

    algorithm: Algorithm
    trainable: Mapping[str, bool]
    label: Label
    failure_cost: float
    train_roles: Collection[str] | None = None
    longest: int | None = None
    replay: Replay | None = None

    @classmethod
    def of(
        cls,
        config: TrainingConfig,
        scenario: Scenario,
        label: Label,
        replay: Replay | None = None,
    ) -> Self:
        """Return the builder of a run's batches.

        Args:
            config: Every setting.
            scenario: Decides which tokens are trained where ``config`` does not.
            label: Of the engine.
            replay: Of the engine.
        """
        return cls(
            config.algorithm,
            trained_components(config, scenario),
            label,
            config.failure_cost,
            config.train_roles,
            config.max_episode_tokens,
            replay,
        )

    def build(
        self, groups: Sequence[Sequence[Trajectory]], broadcast: Broadcast
    ) -> Credited:
        """Put every model call of ``groups`` into the batch and its ledger."""
        made = Credited(groups)
        attempts = [[_Attempt.of(r, broadcast) for r in group] for group in groups]
        every = [attempt for group in attempts for attempt in group]
        speaking = dict.fromkeys(role for attempt in every for role in attempt.places)
        credited = {
            role: self._advantages(role, attempts)
            for role in speaking
            if self.train_roles is None or role in self.train_roles
        }
        for number, group in enumerate(attempts):
            credit = {role: found[number] for role, found in credited.items()}
            made.skipped_groups += all(found is None for found in credit.values())
            for index, attempt in enumerate(group):
                earned: list[float | Bucket] = list(attempt.left_out)
                for role, places in attempt.places.items() if attempt.rewards else ():
                    entries = _entries(role, index, group, credit)
                    for place, entry in zip(places, entries, strict=True):
                        earned[place] = entry
                rollout = attempt.rollout
                entries = self._add(made.batch, number, rollout, earned)
                made.ledger[rollout.rollout_id] = entries
        return made

    def _advantages(
        self, role: str, groups: Sequence[Sequence["_Attempt"]]
    ) -> list[list[list[float] | None] | None]:
        """Return the advantages of one role's calls, by group and rollout.

        Each role of a team has its own baseline and its own scale (Dr. MAS,
        arXiv:2602.08847): the rewards of one do not predict those of another.
        """
        return batch_advantages(
            [[a.of_role(role, a.rewards or ()) for a in group] for group in groups],
            self.algorithm,
            [
                [
                    [self.failure_cost * n for n in a.of_role(role, a.failures)]
                    for a in group
                ]
                for group in groups
            ],
        )

    def _add(
        self,
        batch: TrainingBatch,
        group: int,
        rollout: Trajectory,
        earned: Sequence[float | Bucket],
    ) -> list[Bucket]:
        """Add the trained calls of a rollout, and return the bucket of each.

        Args:
            batch: Gets the sequences.
            group: The number of the rollout's.
            rollout: Whose calls.
            earned: The advantage of each, or the bucket of one that is not trained.
        """
        trained: list[tuple[ModelCall, Places, float]] = []
        entries: list[Bucket] = []
        for call, advantage in zip(rollout.model_calls, earned, strict=True):
            if isinstance(advantage, Bucket):
                entries.append(advantage)
                continue
            positions = self.trained_positions(call)
            if isinstance(positions, Bucket):
                entries.append(positions)
            else:
                entries.append(TRAINED)
                trained.append((call, positions, advantage))
        batch.sequences += merged(trained, group)
        return entries

    def trained_positions(self, call: ModelCall) -> Places | Bucket:
        """Return which response tokens are trained, or the bucket of a call without."""
        if not call.prompt_ids or not call.response_ids:
            return Bucket("masked", "no token ids were recorded")
        if self.longest and len(call.prompt_ids + call.response_ids) > self.longest:
            return Bucket("masked", TOO_LONG)
        if len(call.logprobs) != len(call.response_ids) or not all(
            map(math.isfinite, call.logprobs)
        ):
            return Bucket("masked", "log-probabilities do not match the tokens")
        labels = self.label(call)
        if labels is None:
            return Bucket("masked", "spans not found in the token ids")
        positions = [
            index
            for index, components in enumerate(labels)
            if is_trained(components, self.trainable)
        ]
        if not positions:
            return Bucket("masked", "no trainable component")
        if call.grammar is None:
            return dict.fromkeys(positions)
        allowed = self.replay(call) if self.replay else None
        if allowed is None:
            return Bucket("masked", NOT_REPLAYED)
        free = {at: allowed[at] for at in positions if allowed[at].count > 1}
        return free or Bucket("masked", FORCED)


def trained_components(config: TrainingConfig, scenario: Scenario) -> dict[str, bool]:
    """Return which components the loss covers: as a setting says, or the scenario."""
    if config.train_tokens is not None:
        return components_of(config.train_tokens)
    return scenario.define_trainable_components()


def merged(
    calls: Iterable[tuple[ModelCall, Places, float]], group: int
) -> list[TrainingSequence]:
    """Merge a rollout's calls into as few sequences as their tokens allow.

    Args:
        calls: Each with the places of its response's trained tokens, the tokens that
            each was sampled from (None for all), and their advantage.
        group: The rollout's group, by number.
    """
    sequences: list[TrainingSequence] = []
    for call, positions, advantage in calls:
        start = len(call.prompt_ids)
        own = [made for made in sequences if made.agent == call.agent]
        sequence = _continued(own, call.prompt_ids)
        if sequence is None:
            sequence = TrainingSequence(call.agent, group, [])
            sequences.append(sequence)
        sequence.ids = [*call.prompt_ids, *call.response_ids]
        sequence.trained += [
            TrainedToken(start + at, call.logprobs[at], advantage, allowed)
            for at, allowed in positions.items()
        ]
        sequence.calls += [call] * bool(positions)
    return sequences


def _sequences(calls: Iterable[ModelCall]) -> list[TrainingSequence]:
    """Return the sequences of all calls whose tokens were recorded."""
    return merged([(call, {}, 0.0) for call in calls if call.prompt_ids], 0)


def _count_breaks(calls: Sequence[ModelCall]) -> int:
    """Count the calls whose messages continue an earlier call's, but not its tokens.

    The longest conversation counts that a call continues.
    """
    said = [list(map(_said, call.messages)) for call in calls]
    breaks = 0
    for at, (call, messages) in enumerate(zip(calls, said, strict=True)):
        earlier = [
            other
            for other, before in zip(calls[:at], said, strict=False)
            if other.agent == call.agent
            and other.prompt_ids
            and len(before) < len(messages)
            and messages[len(before)][0] == "assistant"
            and messages[: len(before)] == before
        ]
        if earlier and call.prompt_ids:
            last = max(earlier, key=lambda each: len(each.messages))
            tokens = [*last.prompt_ids, *last.response_ids]
            breaks += call.prompt_ids[: len(tokens)] != tokens
    return breaks


def _said(message: Mapping[str, Any]) -> tuple[Any, ...]:
    content = message.get("content")
    text = content.strip() if isinstance(content, str) else content or ""
    return message.get("role"), text, message.get("tool_call_id")


@dataclass(frozen=True)
class _Attempt:
    """A rollout, one reward per call, and which of the calls are whose.

    ``rewards`` are None if it was not scored; ``failures`` count failed tool calls.
    """

    rollout: Trajectory
    rewards: Sequence[float] | None
    failures: Sequence[int]
    places: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, rollout: Trajectory, broadcast: Broadcast) -> Self:
        places: dict[str, list[int]] = {}
        for place, call in enumerate(rollout.model_calls):
            places.setdefault(call.agent, []).append(place)
        return cls(
            rollout, _rewards(rollout, broadcast), call_failures(rollout), places
        )

    def of_role[T](self, role: str, values: Sequence[T]) -> list[T]:
        """Return the values of the calls of a role; none of an attempt without any."""
        return [values[place] for place in self.places.get(role, ())] if values else []

    @property
    def left_out(self) -> list[Bucket]:
        """The bucket of each call of an attempt that no role has learned from."""
        rollout = self.rollout
        bucket = Bucket("dropped", "no reward for each model call")
        if rollout.status is RolloutStatus.DROPPED:
            bucket = Bucket("dropped", (rollout.reason or NO_REASON).kind)
        return [bucket] * len(rollout.model_calls)


def _entries(
    role: str,
    index: int,
    group: Sequence[_Attempt],
    credited: Mapping[str, list[list[float] | None] | None],
) -> Sequence[float | Bucket]:
    """Return the advantages of a role's calls in one attempt, or their bucket."""
    count = len(group[index].places[role])
    if role not in credited:
        return [Bucket("masked", ROLE_NOT_TRAINED)] * count
    found = credited[role]
    own = None if found is None else found[index]
    if own is not None and any(own):
        return own
    scored = [attempt for attempt in group if attempt.rewards]
    alone = sum(role in attempt.places for attempt in scored) < 2 <= len(scored)
    return [Bucket("masked", NO_COMPARISON if alone else NO_VARIANCE)] * count


def _rewards(rollout: Trajectory, broadcast: Broadcast) -> list[float] | None:
    """Return one finite reward per call, None if the rollout was not scored."""
    if rollout.status is RolloutStatus.DROPPED or rollout.reward is None:
        return None
    rewards = list(broadcast(rollout))
    if len(rewards) != len(rollout.model_calls) or not all(map(math.isfinite, rewards)):
        return None
    return rewards


def _continued(
    sequences: Sequence[TrainingSequence], prompt: Sequence[int]
) -> TrainingSequence | None:
    """Return the longest sequence that ``prompt`` continues token by token."""
    found = [s for s in sequences if list(prompt[: len(s.ids)]) == s.ids]
    return max(found, key=lambda s: len(s.ids), default=None)


def to_dataproto(
    trajectories: Sequence[Trajectory],
    model: str,
    *,
    algorithm: Algorithm = "rloo",
    failure_cost: float = 0.2,
    trainable: Mapping[str, bool] | None = None,
    temperature: float = 1.0,
) -> Any:
    """Return trajectories as a ``verl.DataProto``, for a trainer of verl's own.

    Its rows, mask and advantages are those that engines here learn from: each agent of
    a team has rows of its own, and dropped calls have none. ``old_log_probs`` are
    those of sampling.

    Args:
        trajectories: Of whole groups: the rest of its group is a rollout's baseline.
        model: Whose tokens these are.
        algorithm: Of the baseline.
        failure_cost: As in :class:`~agentgym.core.config.TrainingConfig`.
        trainable: Which components are trained; None: the choice of tools and their
            arguments.
        temperature: Of sampling.

    Raises:
        MissingExtraError: verl is not installed here.
        UsageError: Not one call can be trained; says why.
    """
    try:
        from tensordict import TensorDict
        from verl import DataProto
    except ImportError:
        raise MissingExtraError("verl", "Making a DataProto") from None
    from transformers import AutoTokenizer

    from agentgym.engines.tokens.responses import ResponseReader
    from agentgym.engines.verl.engine import row_of
    from agentgym.engines.verl.rows import to_tensors
    from agentgym.models.chat_template import ChatTemplate

    tokenizer = AutoTokenizer.from_pretrained(model_source(model))
    reader = ResponseReader(
        tokenizer,
        ChatTemplate(model, tokenizer).format,
        frozenset({int(tokenizer.eos_token_id)}),
    )
    builder = BatchBuilder(
        algorithm,
        trainable or TOOL_CALLS,
        lambda call: reader.label(call.prompt_ids, call.response_ids, call.tools),
        failure_cost,
    )
    groups: dict[str, list[Trajectory]] = {}
    for rollout in trajectories:
        groups.setdefault(rollout.group or rollout.task_id, []).append(rollout)
    made = builder.build(
        list(groups.values()), lambda r: [r.reward or 0.0] * len(r.model_calls)
    )
    rows = [row_of(sequence) for sequence in made.batch.sequences]
    if not rows:
        why = Counter(b.reason for found in made.ledger.values() for b in found)
        reason = why.most_common(1)[0][0] if why else "there are none"
        raise UsageError(f"None of the model calls can be trained: {reason}.")
    tensors = to_tensors(rows)
    return DataProto(
        batch=TensorDict(tensors, len(rows)),
        meta_info={
            "temperature": temperature,
            "global_token_num": tensors["attention_mask"].sum(-1).tolist(),
        },
    )
