"""Credit: compute advantages from the rewards of rollouts, by algorithm.

Baselines come from the rewards themselves, so no value model is needed, except for
``ppo``. With r the reward of a rollout:

- ``rloo``: ``r - mean of the others of its group`` (:func:`rloo`), with one scale for
  the batch (:func:`normalise`).
- ``grpo``: ``(r - mean of its group) / their standard deviation`` (:func:`grpo`); each
  rollout weighs the same in the loss, however long it is (:func:`token_weights`).
- ``dr_grpo``: ``r - mean of its group`` (:func:`dr_grpo`).
- ``dapo``: the advantage of ``grpo``, but each token weighs the same; a higher upper
  clip (:func:`clip_range`); groups without a signal are replaced (:func:`most_draws`).
- ``reinforce++``: ``(r - mean of the batch) / its standard deviation``
  (:func:`reinforce_plus_plus`).
- ``ppo``: the rewards themselves (:func:`returns`); the engine's value model makes
  them advantages (:func:`agentgym.engines.verl.updates.gae`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from agentgym.core.config import Algorithm
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory

_CLIP = 0.2
"""PPO's clip of the probability ratio (arXiv:1707.06347)."""
_CLIP_HIGHER = 0.28
"""DAPO's upper clip: tokens that were unlikely may become likelier faster."""
_DRAWS = 10
"""Most draws of tasks in a step of ``dapo``, as in its authors' recipe."""
REPEATED = 3
"""Number of failures that a repeated failed call counts as."""

_EPSILON = 1e-6


type Rewards = Sequence[Sequence[float] | None]
GroupAlgorithm = Literal["rloo", "grpo", "dr_grpo", "dapo"]
"""Algorithms with a baseline per group of attempts at one task."""
type Charges = Sequence[Sequence[float]]
type Advantages = list[list[float] | None]


class Group(NamedTuple):
    """The scored rollouts of a group.

    Attributes:
        size: Their number, at least 2.
        total: The sum of their rewards, each the mean over the rollout's calls.
        spread: Their standard deviation (:func:`deviation`), above 0.
    """

    size: int
    total: float
    spread: float


def rloo(reward: float, own: float, group: Group) -> float:
    """RLOO (arXiv:2402.14740): ``r - mean of the other rollouts' rewards``.

    The paper does not divide. :func:`batch_advantages` divides by one number for the
    batch, so that the reward's scale does not matter and tasks keep their weights.

    Args:
        reward: The reward of a model call.
        own: The reward of its rollout, which is left out of the baseline.
        group: The rollout's group.
    """
    return reward - (group.total - own) / (group.size - 1)


def grpo(reward: float, own: float, group: Group) -> float:
    """GRPO (arXiv:2402.03300): ``(r - mean of the group) / its standard deviation``.

    Nearly solved and nearly hopeless tasks get more weight than others. The standard
    deviation is that of the whole group (divided by its size, not by one less).
    """
    return dr_grpo(reward, own, group) / group.spread


def dr_grpo(reward: float, own: float, group: Group) -> float:
    """Dr. GRPO (arXiv:2503.20783): ``r - mean of the group``, divided by nothing."""
    return reward - group.total / group.size


_FORMULAS: dict[GroupAlgorithm, Callable[[float, float, Group], float]] = {
    "rloo": rloo,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "dapo": grpo,
}


def clip_range(algorithm: Algorithm) -> tuple[float, float]:
    """Return how far the probability ratio may go below and above 1.

    ``dapo`` has a higher upper limit (Clip-Higher, arXiv:2503.14476). Each batch is
    used for one update. Before it, all ratios are near 1, so clipping hardly ever
    matters.
    """
    return _CLIP, _CLIP_HIGHER if algorithm == "dapo" else _CLIP


def most_draws(algorithm: Algorithm) -> int:
    """Return how often a step may draw tasks, to replace groups without a signal.

    ``dapo`` draws until enough groups differ in reward (dynamic sampling,
    arXiv:2503.14476), a limited number of times; all others draw once.
    """
    return _DRAWS if algorithm == "dapo" else 1


def token_weights(algorithm: Algorithm, lengths: Sequence[int]) -> list[float]:
    """Return the weight of a trained token of each rollout; their mean is 1.

    The loss is a mean over the trained tokens of the batch, so that tokens weigh the
    same (DAPO, arXiv:2503.14476). Dr. GRPO (arXiv:2503.20783) has a constant instead
    of the number of tokens, which also is one factor for the batch. GRPO
    (arXiv:2402.03300) is the mean over rollouts of the mean over each one's tokens,
    ``1/G sum(1/|o| sum(...))``: a token of a long rollout weighs less.

    PPO's objective with a weight w is that with the advantage ``w A``.

    Args:
        algorithm: The algorithm's name.
        lengths: Number of trained tokens of each rollout, at least 1.
    """
    if algorithm != "grpo":
        return [1.0] * len(lengths)
    return [sum(lengths) / (len(lengths) * length) for length in lengths]


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
    if algorithm == "ppo":
        return returns(groups, charges)
    if algorithm == "reinforce++":
        return reinforce_plus_plus(groups, charges)
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


def reinforce_plus_plus(
    groups: Sequence[Rewards], charges: Sequence[Charges]
) -> list[Advantages | None]:
    """REINFORCE++ (arXiv:2501.03262): ``(r - mean of the batch) / its deviation``.

    Attempts are compared with those at all tasks, so groups of equal rewards count too.
    The paper takes a penalty on the distance from a reference off the rewards; here it
    is part of the loss, as for all algorithms (``kl_coefficient``).
    """
    scored = [calls for rewards in groups for calls in rewards if calls]
    spread = deviation(scored)
    mean = _mean([_mean(calls) for calls in scored]) if scored else 0.0
    scale = 1.0 / spread if spread > _EPSILON else 0.0
    made: list[Advantages | None] = []
    for rewards, taken in zip(groups, charges, strict=True):
        found = _less(rewards, taken, lambda r, _: scale * (r - mean))
        has_signal = any(advantage for calls in found for advantage in calls or ())
        made.append(found if has_signal else None)
    return made


def returns(
    groups: Sequence[Rewards], charges: Sequence[Charges]
) -> list[Advantages | None]:
    """Return the return of each model call for ``ppo``: its reward minus its penalty.

    A single rollout has a signal too: its baseline is the value model's.
    """
    made = [
        _less(rewards, taken, lambda r, _: r)
        for rewards, taken in zip(groups, charges, strict=True)
    ]
    return [found if any(found) else None for found in made]


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
    if spread < _EPSILON:
        return _less(rewards, charges, lambda _, __: 0.0) if charged else None
    group = Group(len(scored), sum(map(_mean, scored)), spread)
    formula = _FORMULAS[algorithm]
    return _less(rewards, charges, lambda r, own: formula(r, own, group))


def _less(
    rewards: Rewards, charges: Charges, advantage: Callable[[float, float], float]
) -> Advantages:
    """Return the advantages of a group's calls minus their penalties.

    Args:
        rewards: The rewards of each rollout's calls, or None.
        charges: The penalties.
        advantage: The formula, of a call's reward and its rollout's.
    """
    return [
        [advantage(r, _mean(calls)) - c for r, c in zip(calls, taken, strict=True)]
        if calls
        else None
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
