"""Credit: compute advantages from the rewards of a group of rollouts.

Baselines come from the rewards themselves, so no value model is needed. With r the
reward of a rollout:

- ``rloo`` (arXiv:2402.14740): ``r - mean of the others of the group``, divided by the
  root mean square over the whole batch (:func:`normalise`), so that the reward's scale
  does not matter and tasks keep their weights.
- ``grpo`` (arXiv:2402.03300): ``(r - mean of the group) / its standard deviation``,
  which gives nearly solved and nearly hopeless tasks more weight.
- ``dr_grpo`` (arXiv:2503.20783): ``r - mean of the group``, not divided.
- ``dapo`` (arXiv:2503.14476): like ``grpo``, with a higher upper clip
  (:func:`clip_range`). All algorithms average over the tokens of the batch, as DAPO
  does. Families without a signal are sampled less, where DAPO resamples
  (:mod:`agentgym.train.tasks`).
- ``reinforce++`` (arXiv:2501.03262): ``(r - mean of the batch) / its standard
  deviation``: attempts are compared with those at all tasks.
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
"""Number of failures that a repeated failed call counts as."""

_EPSILON = 1e-6


type Rewards = Sequence[Sequence[float] | None]
GroupAlgorithm = Literal["rloo", "grpo", "dr_grpo", "dapo"]
"""Algorithms with a baseline per group of attempts at one task."""
type Charges = Sequence[Sequence[float]]
type Advantages = list[list[float] | None]


def clip_range(algorithm: Algorithm) -> tuple[float, float]:
    """Return how far the probability ratio may go below and above 1.

    Each batch is used for one update. Before it, all ratios are near 1, so clipping
    hardly ever matters.
    """
    return _CLIP, _CLIP_HIGHER if algorithm == "dapo" else _CLIP


def batch_advantages(
    groups: Sequence[Rewards], algorithm: Algorithm, charges: Sequence[Charges]
) -> list[Advantages | None]:
    """Return the advantages of a batch: :func:`group_advantages` of each group.

    Args:
        groups: Rewards for :func:`group_advantages`, by group.
        algorithm: The algorithm's name, which decides baseline and scale.
        charges: Penalties for :func:`group_advantages`, by group.

    Returns:
        For each group its rollouts' advantages, or None if it has no signal.
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
    """Return the rewards minus the batch's mean, divided by its standard deviation."""
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
        rewards: For each rollout one reward per model call; None if the rollout was not
            scored, which excludes it from the baseline.
        algorithm: The algorithm's name, which decides the baseline.
        charges: For each rollout, penalties on its calls' advantages. They are not part
            of a baseline, so that other calls do not gain from a failure.

    Returns:
        For each rollout its calls' advantages, or None without a reward; None
        for the group if it has no signal: fewer than two scored rollouts, or
        equal rewards for all calls and no penalties.
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

    Each rollout has one reward per model call, at least one, and the same weight
    however many calls it has. If all calls of a rollout have its reward, this is the
    standard deviation over rollouts.
    """
    if not rewards:
        return 0.0
    mean = _mean([_mean(calls) for calls in rewards])
    return math.sqrt(_mean([_mean([(r - mean) ** 2 for r in c]) for c in rewards]))


def call_failures(trajectory: Trajectory) -> list[int]:
    """Count the failed tool calls of each model call.

    A failed call that repeats an earlier one of the same role counts :data:`REPEATED`
    times, unless one of the role's calls worked in between.
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
    """Return the factor that scales a batch's advantages to a root mean square of 1.

    One factor for the batch, not one per group (as in REINFORCE++, arXiv:2501.03262).
    It is 1 if all advantages are 0.
    """
    if not advantages:
        return 1.0
    square = sum(a * a for a in advantages) / len(advantages)
    return 1.0 / math.sqrt(square) if square > _EPSILON**2 else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
