"""Convert scored rollouts to training data, and record how each call was used.

:func:`report_step` and :func:`credit_lines` describe a finished step.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from statistics import fmean
from typing import Any, Self

from agentgym.core.components import Components, components_of, is_trained
from agentgym.core.config import Algorithm, TrainingConfig
from agentgym.core.ledger import (
    FAR_OFF,
    FORCED,
    NO_COMPARISON,
    NO_VARIANCE,
    NOT_REPLAYED,
    OF_SOLUTION,
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
    UpdateFigures,
    UpdateMetrics,
)
from agentgym.engines.credit import batch_advantages, call_failures, token_weights
from agentgym.evaluate.events import StepReport
from agentgym.scenarios.base import Scenario

TOOL_CALLS = components_of("calls")
"""The parts of a response trained by default: choice of a tool, and its arguments."""
Label = Callable[[ModelCall], list[Components] | None]
"""Returns, for each token of a response, the kinds of text that it belongs to (choice
of a tool, arguments, reasoning, other text); None if they are unknown."""
Replay = Callable[[ModelCall], Sequence[Allowed] | None]
"""Returns, for each position of a response, the tokens that its grammar (a constraint
on sampling) allowed; None if they are unknown."""
Places = Mapping[int, Allowed | None]
"""By position of each trained token of a response: the tokens that the grammar allowed
at this position; None without a grammar."""
Broadcast = Callable[[Trajectory], Sequence[float]]
"""Returns one reward for each model call of a scored rollout."""


@dataclass
class Credited:
    """A step's rollouts, their training data, and how each model call was used.

    Attributes:
        groups: The rollouts; attempts at the same task form a group.
        batch: The engine's training data.
        ledger: By rollout id, how each model call was used (e.g. trained).
        skipped_groups: Number of groups without a training signal, e.g. because all
            their rewards are equal.
        solved_groups: Number of these in which every attempt succeeded.
    """

    groups: Sequence[Sequence[Trajectory]]
    batch: TrainingBatch = field(default_factory=TrainingBatch)
    ledger: dict[str, list[Bucket]] = field(default_factory=dict)
    skipped_groups: int = 0
    solved_groups: int = 0

    @property
    def rollouts(self) -> list[Trajectory]:
        """All rollouts of the step."""
        return [rollout for group in self.groups for rollout in group]

    @property
    def sequences(self) -> float:
        """Mean number of token sequences per rollout; the fewest is one per agent.

        Calls share a sequence if each prompt begins with all tokens of the call before.
        """
        known = [made for made in self.rollouts if made.model_calls]
        count = 0
        for made in known:
            calls = [call for call in made.model_calls if call.prompt_ids]
            count += len(merged([(call, {}, 0.0) for call in calls], group=0))
        return count / max(1, len(known))

    @property
    def breaks(self) -> int:
        """Number of calls that continue an earlier call's messages, but not its tokens.

        For example, a chat template may remove earlier reasoning from the prompt. Such
        a call cannot share the earlier call's token sequence.
        """
        return sum(_count_breaks(made.model_calls) for made in self.rollouts)

    def mask(self, sequences: Sequence[TrainingSequence], reason: str) -> None:
        """Record the calls of ``sequences`` as masked, with the reason.

        The loss left these sequences out. Only calls recorded as trained are changed.
        """
        left_out = {id(call) for sequence in sequences for call in sequence.calls}
        masked = Bucket("masked", reason)
        for rollout in self.rollouts:
            buckets = self.ledger[rollout.rollout_id]
            for place, call in enumerate(rollout.model_calls):
                if id(call) in left_out and buckets[place] == TRAINED:
                    buckets[place] = masked

    def conclude(self, update: UpdateMetrics) -> None:
        """Correct the record of each call's use after the engine's update.

        An engine that reads the rollouts itself sets ``update.credit``. The engine's
        sequences and record then replace those of this object. Calls that the loss
        left out become masked. If the engine refused the update, all trained calls are
        masked.
        """
        if update.credit is not None:
            self.batch.sequences = update.credit.sequences
            self.ledger = update.credit.ledger
        self.mask(update.far_off, FAR_OFF)
        if update.refused:
            masked = Bucket("masked", update.refused)
            for buckets in self.ledger.values():
                buckets[:] = [masked if b == TRAINED else b for b in buckets]


@dataclass(frozen=True)
class BatchBuilder:
    """Builds a training batch from a step's rollouts.

    Attributes:
        algorithm: Name of the algorithm that computes advantages, e.g. ``rloo``.
        trainable: For each kind of text in a response, such as reasoning, whether the
            loss covers it.
        label: Function that labels each token of a response with its kinds of text
            (see :data:`Label`). If it cannot label a call, the call is masked.
        failure_cost: Amount subtracted from a model call's advantage for each of its
            tool calls that failed.
        train_roles: Names of the team's agents to train; None trains all.
        longest: Maximum number of tokens of a trained call, prompt and response
            together; longer calls are masked. None for no limit.
        replay: Function that computes the tokens that a call's grammar allowed (see
            :data:`Replay`). If None, calls with a grammar are masked.
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
        """Create a run's batch builder from its settings and its scenario.

        ``label`` and ``replay`` are the functions of the run's engine.
        """
        return cls(
            config.algorithm,
            trained_components(config, scenario),
            label,
            config.failure_cost,
            config.train_roles,
            config.episode_tokens,
            replay,
        )

    def build(
        self, groups: Sequence[Sequence[Trajectory]], broadcast: Broadcast
    ) -> Credited:
        """Build the batch of a step, and record how each model call is used.

        ``broadcast`` returns one reward for each model call of a rollout.
        """
        made = Credited(groups)
        attempts = [[_Attempt.of(r, broadcast) for r in group] for group in groups]
        credited = self._credited(attempts)
        rollouts: list[list[TrainingSequence]] = []
        for number, group in enumerate(attempts):
            credit = {role: found[number] for role, found in credited.items()}
            if all(found is None for found in credit.values()):
                made.skipped_groups += 1
                made.solved_groups += all(rollout.success for rollout in groups[number])
            for index, attempt in enumerate(group):
                earned: list[float | Bucket] = list(attempt.left_out)
                for role, places in attempt.places.items() if attempt.rewards else ():
                    entries = _entries(role, index, group, credit, self.algorithm)
                    for place, entry in zip(places, entries, strict=True):
                        earned[place] = entry
                rollout = attempt.rollout
                sequences, entries = self._trained(number, rollout, earned)
                rollouts.append(sequences)
                made.ledger[rollout.rollout_id] = entries
        made.batch.sequences += self._weighted(rollouts)
        made.batch.rollouts = made.rollouts
        return made

    def has_signal(self, group: Sequence[Trajectory], broadcast: Broadcast) -> bool:
        """Return whether a group has a training signal, e.g. rewards that differ.

        ``broadcast`` returns one reward for each model call of a rollout.
        """
        credited = self._credited([[_Attempt.of(r, broadcast) for r in group]])
        return any(found[0] is not None for found in credited.values())

    def sequences(
        self, rollout: Trajectory
    ) -> tuple[list[TrainingSequence], list[Bucket]]:
        """Return a rollout's trained sequences, and how each of its calls is used.

        For other trainers: all advantages are 0.
        """
        if rollout.status is RolloutStatus.DROPPED or rollout.reward is None:
            dropped = Bucket("dropped", (rollout.reason or NO_REASON).kind)
            return [], [dropped] * len(rollout.model_calls)
        earned: list[float | Bucket] = [
            0.0
            if self.train_roles is None or call.agent in self.train_roles
            else Bucket("masked", ROLE_NOT_TRAINED)
            for call in rollout.model_calls
        ]
        return self._trained(0, rollout, earned)

    def _credited(
        self, groups: Sequence[Sequence["_Attempt"]]
    ) -> dict[str, list[list[list[float] | None] | None]]:
        """Return for each trained role the advantages of its calls, or None.

        They are ordered by group and rollout. Each role has its own baseline and scale
        (Dr. MAS, arXiv:2602.08847), since one role's rewards do not predict another's.
        """
        every = [attempt for group in groups for attempt in group]
        speaking = dict.fromkeys(role for attempt in every for role in attempt.places)
        credited = {}
        for role in speaking:
            if self.train_roles is not None and role not in self.train_roles:
                continue
            rewards = [[a.of_role(role, a.rewards or ()) for a in g] for g in groups]
            failures = [[a.of_role(role, a.failures) for a in g] for g in groups]
            costs = [[[self.failure_cost * n for n in f] for f in g] for g in failures]
            credited[role] = batch_advantages(rewards, self.algorithm, costs)
        return credited

    def _weighted(
        self, rollouts: Sequence[Sequence[TrainingSequence]]
    ) -> list[TrainingSequence]:
        """Multiply each advantage by the weight of its rollout; return all sequences.

        The algorithm computes the weights from the rollouts' numbers of trained tokens.
        """
        trained = [sequences for sequences in rollouts if sequences]
        lengths = [sum(len(s.trained) for s in sequences) for sequences in trained]
        weights = token_weights(self.algorithm, lengths)
        for sequences, weight in zip(trained, weights, strict=True):
            for s in sequences if weight != 1.0 else ():
                s.trained = [
                    replace(t, advantage=weight * t.advantage) for t in s.trained
                ]
        return [sequence for sequences in trained for sequence in sequences]

    def _trained(
        self, group: int, rollout: Trajectory, earned: Sequence[float | Bucket]
    ) -> tuple[list[TrainingSequence], list[Bucket]]:
        """Return a rollout's trained sequences, and how each of its calls is used.

        ``group`` is the number of the rollout's group. ``earned`` has the advantage of
        each call, or the reason why it is not trained.
        """
        trained: list[tuple[ModelCall, Places, float]] = []
        entries: list[Bucket] = []
        for call, advantage in zip(rollout.model_calls, earned, strict=True):
            if call.is_planned:
                advantage = Bucket("masked", OF_SOLUTION)
            if isinstance(advantage, Bucket):
                entries.append(advantage)
                continue
            positions = self.trained_positions(call)
            if isinstance(positions, Bucket):
                entries.append(positions)
            else:
                entries.append(TRAINED)
                trained.append((call, positions, advantage))
        return merged(trained, group), entries

    def trained_positions(self, call: ModelCall) -> Places | Bucket:
        """Return the positions to train in the response of a call.

        If there are none, return how the call counts instead: as masked, and why.
        """
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
    """Return for each kind of text in a response whether the loss covers it.

    If the setting ``train_tokens`` is None, the scenario decides.
    """
    if config.train_tokens is not None:
        return components_of(config.train_tokens)
    return scenario.define_trainable_components()


def merged(
    calls: Iterable[tuple[ModelCall, Places, float]], group: int
) -> list[TrainingSequence]:
    """Merge a rollout's model calls into as few token sequences as possible.

    A call joins a sequence of the same agent if its prompt begins with the tokens of
    the whole sequence. Each call comes with the positions of its trained tokens and its
    advantage; ``group`` is the number of the rollout's group.
    """
    sequences: list[TrainingSequence] = []
    for call, positions, advantage in calls:
        start = len(call.prompt_ids)
        continued = [
            made
            for made in sequences
            if made.agent == call.agent and call.prompt_ids[: len(made.ids)] == made.ids
        ]
        sequence = max(continued, key=lambda made: len(made.ids), default=None)
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


def _count_breaks(calls: Sequence[ModelCall]) -> int:
    """Count the calls that continue an earlier call's messages, but not its tokens.

    If a call continues several earlier calls, its tokens are compared with the longest.
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
    """A rollout with the data from which its advantages are computed."""

    rollout: Trajectory
    rewards: Sequence[float] | None  # of each model call; None: not to be trained on
    failures: Sequence[int]  # number of failed tool calls, of each model call
    places: Mapping[str, Sequence[int]]  # indices of each role's model calls

    @classmethod
    def of(cls, rollout: Trajectory, broadcast: Broadcast) -> Self:
        places: dict[str, list[int]] = {}
        for place, call in enumerate(rollout.model_calls):
            places.setdefault(call.agent, []).append(place)
        return cls(
            rollout, _rewards(rollout, broadcast), call_failures(rollout), places
        )

    def of_role[T](self, role: str, values: Sequence[T]) -> list[T]:
        """Select the values of one role's calls; empty if ``values`` is empty."""
        return [values[place] for place in self.places.get(role, ())] if values else []

    @property
    def left_out(self) -> list[Bucket]:
        """For each model call, the reason why it is dropped.

        Used only if the attempt is not trained on.
        """
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
    algorithm: Algorithm,
) -> Sequence[float | Bucket]:
    """Return the advantages of a role's calls in the attempt ``group[index]``.

    For calls that are not trained it has the :class:`Bucket` with the reason. ``ppo``
    has returns instead of advantages, and trains its calls even if all are 0.
    """
    count = len(group[index].places[role])
    if role not in credited:
        return [Bucket("masked", ROLE_NOT_TRAINED)] * count
    found = credited[role]
    own = None if found is None else found[index]
    if own is not None and (any(own) or algorithm == "ppo"):
        return own
    scored = [attempt for attempt in group if attempt.rewards]
    alone = sum(role in attempt.places for attempt in scored) < 2 <= len(scored)
    return [Bucket("masked", NO_COMPARISON if alone else NO_VARIANCE)] * count


def _rewards(rollout: Trajectory, broadcast: Broadcast) -> list[float] | None:
    """Return one reward per model call of a rollout.

    None if the rollout was dropped or not scored, or a reward is missing or not finite.
    """
    if rollout.status is RolloutStatus.DROPPED or rollout.reward is None:
        return None
    rewards = list(broadcast(rollout))
    if len(rewards) != len(rollout.model_calls) or not all(map(math.isfinite, rewards)):
        return None
    return rewards


def report_step(
    credited: Credited,
    update: UpdateMetrics,
    seconds: tuple[float, float],
    episodes: int,
    budget: int,
    left: float,
) -> StepReport:
    """Return the report of a step.

    ``seconds`` are those of its rollouts and its update.
    """
    rollouts = credited.rollouts
    scored = [t for t in rollouts if t.reward is not None]
    calls = [
        call
        for t in scored
        for answers in [t.form_answers()]
        for call in t.get_tool_calls()
        if call.id not in answers
    ]
    answers = [call for t in rollouts for call in t.model_calls]
    tokens = sum(len(answer.response_ids) for answer in answers)
    return StepReport(
        **{each.name: getattr(update, each.name) for each in fields(UpdateFigures)},
        episodes=episodes,
        budget=budget,
        reward=sum(t.reward or 0.0 for t in scored) / len(scored),
        success_rate=sum(bool(t.success) for t in scored) / len(scored),
        right_tool=_mean([t.right_tool for t in scored]),
        right_arguments=_mean([t.right_arguments for t in scored]),
        tool_reliability=sum(c.outcome == "ok" for c in calls) / max(1, len(calls)),
        trained_tokens=credited.batch.trained_tokens,
        sequences=credited.sequences,
        breaks=credited.breaks,
        sequences_masked=len(update.far_off),
        answers_cut=sum(a.finish_reason == "length" for a in answers)
        / max(1, len(answers)),
        skipped_groups=credited.skipped_groups,
        groups=len(credited.groups),
        dropped=len(rollouts) - len(scored),
        sampled_tokens=tokens,
        rollout_seconds=seconds[0],
        update_seconds=seconds[1],
        tokens_per_second=tokens / sum(seconds),
        seconds_left=left,
    )


def credit_lines(
    credited: Credited, verdicts: Mapping[str, Any], update: UpdateMetrics
) -> Iterator[dict[str, Any]]:
    """Yield one line of ``credit.jsonl`` per rollout: how its model calls were trained.

    Each call has ``bucket`` (trained, masked or dropped) and ``reason``. A trained call
    also has ``advantage``, and ``spans``: ranges [start, end) of trained tokens in its
    response. If the engine measured them, there are three more fields, in nats:
    ``gaps`` (for each trained token, the learner's log-probability minus that at
    sampling; empty if all are below 0.0005), and ``entropy`` and ``kl`` (means over the
    trained tokens). If a judge model ranked the rollout, ``judge`` has its verdict. An
    engine that reads the rollouts itself adds fields on how its own rules changed them.
    """
    trained: dict[int, dict[str, Any]] = {}
    for number, sequence in enumerate(credited.batch.sequences):
        measured = [
            values[number] if values else ()
            for values in (update.learned, update.entropies, update.moved)
        ]
        for call in sequence.calls:
            start, size = len(call.prompt_ids), len(call.response_ids)
            places = [token.position - start for token in sequence.trained]
            own = [n for n, place in enumerate(places) if 0 <= place < size]
            learned, entropies, moved = (
                [values[n] for n in own] if values else None for values in measured
            )
            found = trained[id(call)] = {
                "advantage": sequence.trained[own[0]].advantage if own else 0.0,
                "spans": _spans([places[n] for n in own]),
            }
            if learned is not None:
                sampled = [sequence.trained[n].logprob for n in own]
                gaps = [round(a - b, 3) for a, b in zip(learned, sampled, strict=True)]
                found["gaps"] = gaps if any(gaps) else []
            for name, values in ("entropy", entropies), ("kl", moved):
                if values:
                    found[name] = float(f"{fmean(values):.3g}")
    for rollout in credited.rollouts:
        buckets = credited.ledger[rollout.rollout_id]
        judged = verdicts.get(rollout.rollout_id)
        yield {
            "rollout": rollout.rollout_id,
            **({} if judged is None else {"judge": judged}),
            **(
                update.credit.remarks.get(rollout.rollout_id, {})
                if update.credit
                else {}
            ),
            "calls": [
                {"bucket": bucket.verb, "reason": bucket.reason}
                | trained.get(id(call), {})
                for call, bucket in zip(rollout.model_calls, buckets, strict=True)
            ],
        }


def _spans(places: Sequence[int]) -> list[tuple[int, int]]:
    """Convert ascending positions to ranges [start, end)."""
    found = []
    for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        own = [place for _, place in run]
        found.append((own[0], own[-1] + 1))
    return found


def _mean(found: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None
