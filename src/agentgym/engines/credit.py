"""Credit: from the rewards of a group of rollouts to the advantage of each.

The baselines come from the rewards themselves, so that no value model is needed. With
r the reward of a rollout:

- ``rloo`` (arXiv:2402.14740): ``r - mean of the others of the group``, divided by the
  root mean square over the whole batch (:func:`normalise`), so that the scale does not
  depend on the reward's, and the weights between tasks stay as they are.
- ``grpo`` (arXiv:2402.03300): ``(r - mean of the group) / its standard deviation``,
  which weights nearly-solved and nearly-hopeless tasks up.
- ``dr_grpo`` (arXiv:2503.20783): ``r - mean of the group``, divided by nothing.
- ``dapo`` (arXiv:2503.14476): as ``grpo``, and the ratio is clipped further above
  (:func:`clip_range`). All algorithms average over the tokens of the batch, as DAPO
  does, and families without a signal are sampled less, where DAPO samples on
  (:mod:`agentgym.train.tasks`).
- ``reinforce++`` (arXiv:2501.03262): ``(r - mean of the batch) / its standard
  deviation``: attempts are compared with all tasks', not with their own.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from agentgym.core.config import Algorithm
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory

_CLIP = 0.2
"""PPO's clip of the probability ratio (arXiv:1707.06347)."""
_CLIP_HIGHER = 0.28
"""DAPO's upper clip: tokens that were unlikely may become likelier faster."""
REPEATED = 3
"""How many failures a failed call counts that merely repeats one."""

_EPSILON = 1e-6


type Rewards = Sequence[Sequence[float] | None]
GroupAlgorithm = Literal["rloo", "grpo", "dr_grpo", "dapo"]
"""Algorithms whose baseline is that of a task's own attempts."""
type Charges = Sequence[Sequence[float]]
type Advantages = list[list[float] | None]


def clip_range(algorithm: Algorithm) -> tuple[float, float]:
    """Return how far below and above 1 the probability ratio counts.

    A batch is used for one update, before which all ratios are near 1, so that it
    hardly ever matters.
    """
    return _CLIP, _CLIP_HIGHER if algorithm == "dapo" else _CLIP


def batch_advantages(
    groups: Sequence[Rewards], algorithm: Algorithm, charges: Sequence[Charges]
) -> list[Advantages | None]:
    """Return the advantages of a batch: :func:`group_advantages` of each group.

    Args:
        groups: Rewards as :func:`group_advantages` takes them, by group.
        algorithm: Which baseline and scale.
        charges: Those of each group.

    Returns:
        For each group its rollouts' advantages; None for one without a signal.
    """
    if algorithm == "reinforce++":
        return _standardised(groups, charges)
    made = [
        group_advantages(rewards, algorithm, taken)
        for rewards, taken in zip(groups, charges, strict=True)
    ]
    if algorithm == "rloo":
        every = [a for g in made if g for calls in g if calls for a in calls]
        scale = normalise(every)
        for found in made:
            for calls in found or ():
                if calls:
                    calls[:] = [advantage * scale for advantage in calls]
    return made


def _standardised(
    groups: Sequence[Rewards], charges: Sequence[Charges]
) -> list[Advantages | None]:
    """Return the rewards less their mean over the batch, over their deviation."""
    scored = [calls for rewards in groups for calls in rewards if calls]
    spread = deviation(scored)
    mean = _mean([_mean(calls) for calls in scored]) if scored else 0.0
    scale = 1.0 / spread if spread > _EPSILON else 0.0
    made: list[Advantages | None] = []
    for rewards, taken in zip(groups, charges, strict=True):
        found = [
            [scale * (r - mean) - c for r, c in zip(calls, lost, strict=True)]
            if calls
            else None
            for calls, lost in zip(rewards, taken, strict=True)
        ]
        has_signal = any(advantage for calls in found for advantage in calls or ())
        made.append(found if has_signal else None)
    return made


def group_advantages(
    rewards: Rewards, algorithm: GroupAlgorithm, charges: Charges | None = None
) -> Advantages | None:
    """Return one advantage per model call of each rollout of a group.

    Args:
        rewards: For each rollout one reward per model call, or None if the rollout
            was never scored; it is then no part of the others' baseline.
        algorithm: Which baseline.
        charges: Of each rollout, the penalties of its calls' advantages; not part of
            any baseline, so that no other call gains by a failure.

    Returns:
        For each rollout its calls' advantages, None where it has no reward; None
        altogether if the group has no signal: fewer than two scored rollouts, or
        all their calls with the same reward and none charged.
    """
    scored = [calls for calls in rewards if calls]
    if len(scored) < 2:
        return None
    if charges is None:
        charges = [[0.0] * len(calls or ()) for calls in rewards]
    spread = deviation(scored)
    charged = any(any(c) for r, c in zip(rewards, charges, strict=True) if r)
    if spread < _EPSILON and not charged:
        return None
    scores = [_mean(calls) for calls in scored]
    total, others = sum(scores), len(scores) - 1

    def advantage(reward: float, score: float) -> float:
        if spread < _EPSILON:
            return 0.0
        if algorithm in ("grpo", "dapo"):
            return (reward - total / len(scores)) / spread
        if algorithm == "dr_grpo":
            return reward - total / len(scores)
        return reward - (total - score) / others

    return [
        None
        if not calls
        else [advantage(r, _mean(calls)) - c for r, c in zip(calls, taken, strict=True)]
        for calls, taken in zip(rewards, charges, strict=True)
    ]


def deviation(rewards: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of rollouts' rewards, 0 if there are none.

    Each has one reward per model call, at least one. Every rollout has the same weight,
    however many calls it has; where all calls of a rollout have its reward, this is the
    standard deviation over rollouts.
    """
    if not rewards:
        return 0.0
    mean = _mean([_mean(calls) for calls in rewards])
    return math.sqrt(_mean([_mean([(r - mean) ** 2 for r in c]) for c in rewards]))


def call_failures(trajectory: Trajectory) -> list[int]:
    """Count, for each model call, its tool calls that failed.

    One that repeats an earlier one of the same role, none of whose calls worked in
    between, counts :data:`REPEATED` times.
    """
    counts: list[int] = []
    by_role: defaultdict[str, list[ToolCall]] = defaultdict(list)
    failed: list[ToolCall] = []
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            failed = by_role[step.agent]
            counts.append(0)
        elif step.outcome is ToolOutcome.OK:
            failed.clear()
        else:
            if counts:
                counts[-1] += REPEATED if any(map(step.repeats, failed)) else 1
            failed.append(step)
    return counts


def normalise(advantages: Sequence[float]) -> float:
    """Return the factor that gives a batch's advantages a root mean square of 1.

    One factor for the batch, not one per group (as in REINFORCE++,
    arXiv:2501.03262). It is 1 for a batch without any advantage.
    """
    if not advantages:
        return 1.0
    square = sum(a * a for a in advantages) / len(advantages)
    return 1.0 / math.sqrt(square) if square > _EPSILON**2 else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
