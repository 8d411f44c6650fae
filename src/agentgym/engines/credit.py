"""Credit: compute advantages from the rewards of rollouts, by algorithm.

Baselines come from the rewards themselves, so no value model is needed, except for
``ppo``. With r the reward of a rollout:

- ``rloo``: ``r - mean of the others of its group`` (:func:`rloo`), with one scale for
  the batch (:func:`normalise`).
- ``grpo``: ``(r - mean of its group) / their standard deviation`` (:func:`grpo`); each
  rollout weighs the same in the loss, however long it is (:func:`token_weights`).
- ``dr_grpo``: ``r - mean of its group`` (:func:`dr_grpo`).
- ``dapo``: the advantage of ``grpo``, but each token weighs the same. The upper clip is
  higher (:func:`clip_range`). Groups without a signal, whose rewards are all equal, are
  replaced more often (:func:`most_draws`).
- ``reinforce++``: ``(r - mean of the batch) / its standard deviation``
  (:func:`reinforce_plus_plus`).
- ``ppo``: the rewards themselves (:func:`returns`); the engine turns them into
  advantages with its value model (:func:`agentgym.plugins.verl.updates.gae`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from agentgym.core.config import Algorithm, TrainingConfig
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory

_CLIP = 0.2
"""PPO clips the probability ratio to 1 - 0.2 .. 1 + 0.2 (arXiv:1707.06347)."""
_CLIP_HIGHER = 0.28
"""DAPO's upper clip. Unlikely tokens can become likely faster with it."""
DAPO_DRAWS = 10
"""A ``dapo`` step draws tasks at most this often, as in its authors' recipe."""
REPEATED = 3
"""A failed tool call that repeats an earlier failed call counts as this many failures.
"""

_EPSILON = 1e-6


type Rewards = Sequence[Sequence[float] | None]
GroupAlgorithm = Literal["rloo", "grpo", "dr_grpo", "dapo"]
"""Algorithms whose baseline is the mean reward of a group of attempts at one task."""
type Charges = Sequence[Sequence[float]]
type Advantages = list[list[float] | None]


class Group(NamedTuple):
    """Statistics of a group's scored rollouts.

    Attributes:
        size: Number of scored rollouts, at least 2.
        total: Sum of the rollouts' rewards; a rollout's reward is the mean over its
            model calls.
        spread: Standard deviation of the rewards (:func:`deviation`), above 0.
    """

    size: int
    total: float
    spread: float


def rloo(reward: float, own: float, group: Group) -> float:
    """Return RLOO's advantage (arXiv:2402.14740): ``r - mean of the other rollouts``.

    ``reward`` is r, the reward of one model call, and ``own`` is the reward of its
    whole rollout. The paper does not scale the advantage. :func:`batch_advantages`
    scales all advantages of the batch by one factor, so that the reward's scale does
    not matter and the tasks keep their weights relative to each other.
    """
    return reward - (group.total - own) / (group.size - 1)


def grpo(reward: float, own: float, group: Group) -> float:
    """Return GRPO's advantage (arXiv:2402.03300): ``(r - mean) / standard deviation``.

    Mean and standard deviation are over the rollouts of the group, and the variance is
    divided by ``size``, not by ``size - 1``. Tasks that nearly always or nearly never
    succeed get more weight.
    """
    return dr_grpo(reward, own, group) / group.spread


def dr_grpo(reward: float, own: float, group: Group) -> float:
    """Return Dr. GRPO's advantage (arXiv:2503.20783): ``r - mean of the group``."""
    return reward - group.total / group.size


_FORMULAS: dict[GroupAlgorithm, Callable[[float, float, Group], float]] = {
    "rloo": rloo,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "dapo": grpo,
}


def clip_range(algorithm: Algorithm) -> tuple[float, float]:
    """Return by how much the probability ratio may be below 1, and above 1.

    ``dapo`` has a higher upper limit (Clip-Higher, arXiv:2503.14476). Clipping has
    little effect in general: each batch is used for one update, when all ratios are
    still near 1.
    """
    return _CLIP, _CLIP_HIGHER if algorithm == "dapo" else _CLIP


def most_draws(config: TrainingConfig) -> int:
    """Return how many times a step may draw tasks.

    ``dapo`` draws tasks again, up to this limit, until enough groups have rollouts with
    different rewards (dynamic sampling, arXiv:2503.14476). Other algorithms replace
    groups without a signal once, unless tasks are to be taken in turn.
    """
    if config.algorithm == "dapo":
        return DAPO_DRAWS
    return 1 if config.task_choice == "uniform" else 2


def token_weights(algorithm: Algorithm, lengths: Sequence[int]) -> list[float]:
    """Return for each rollout the loss weight of its trained tokens.

    The mean weight over all trained tokens is 1. For most algorithms each weight is 1:
    the loss is a mean over the batch's tokens, as in DAPO (arXiv:2503.14476). GRPO
    (arXiv:2402.03300) takes the mean over rollouts of the mean over the tokens of a
    rollout, ``1/G sum(1/|o| sum(...))``, so a token of a long rollout weighs less.
    Dr. GRPO (arXiv:2503.20783) divides by a constant, so all its tokens weigh the same.

    To apply a weight w, multiply the token's advantage by w.
    """
    if algorithm != "grpo":
        return [1.0] * len(lengths)
    return [sum(lengths) / (len(lengths) * length) for length in lengths]


def batch_advantages(
    groups: Sequence[Rewards], algorithm: Algorithm, charges: Sequence[Charges]
) -> list[Advantages | None]:
    """Return for each group the advantages of its model calls.

    Args:
        groups: For each group, the rewards, as in :func:`group_advantages`.
        algorithm: The algorithm's name.
        charges: For each group, the penalties, as in :func:`group_advantages`.

    Returns:
        For each group, the advantages of each rollout's calls; None for a group that
        has no effect on the loss, e.g. since all its rewards are equal.
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
    """Return REINFORCE++'s advantages (arXiv:2501.03262).

    They are ``(r - mean) / standard deviation``, with mean and standard deviation over
    all rollouts of the batch. So a group whose rewards are all equal can have a signal
    too. The result has None for a group whose advantages are all 0. The paper subtracts
    the KL penalty from the rewards; AgentGym adds it to the loss (``kl_coefficient``).
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
    """Compute the returns for ``ppo``: each model call's reward minus its penalty.

    The penalty is for failed tool calls. The result has None for a group without a
    scored rollout. One scored rollout is enough: the value model is the baseline.
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
        rewards: For each rollout one reward per model call; None for a rollout that was
            not scored and so does not count for the baseline.
        algorithm: The algorithm's name, which decides the baseline.
        charges: For each rollout one penalty per model call, for its failed tool calls.
            It is subtracted from the call's advantage, and does not change the
            baseline: other calls do not gain from a failure. None for no penalties.

    Returns:
        For each rollout its calls' advantages; None for a rollout without a reward.
        None instead of the list if the group has no signal: fewer than two scored
        rollouts, or equal rewards for all calls and no penalties.
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
    """Apply ``advantage`` to each model call, and subtract the call's penalty.

    The arguments of ``advantage`` are the call's reward and its rollout's mean reward.
    """
    return [
        [advantage(r, _mean(calls)) - c for r, c in zip(calls, taken, strict=True)]
        if calls
        else None
        for calls, taken in zip(rewards, charges, strict=True)
    ]


def deviation(rewards: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of the model calls' rewards; 0 without rollouts.

    Each rollout has the same weight, however many calls it has. If the calls of each
    rollout have equal rewards, this is the standard deviation over rollouts.
    """
    if not rewards:
        return 0.0
    mean = _mean([_mean(calls) for calls in rewards])
    return math.sqrt(_mean([_mean([(r - mean) ** 2 for r in c]) for c in rewards]))


def call_failures(trajectory: Trajectory) -> list[int]:
    """Return for each model call how many of its tool calls failed.

    A failed call counts :data:`REPEATED` times if it repeats an earlier failed call of
    the same role, and none of the role's calls succeeded in between.
    """
    counts: list[int] = []
    by_role: defaultdict[str, list[ToolCall]] = defaultdict(list)
    failed: list[ToolCall] = []
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            failed = by_role[step.agent]
            counts.append(0)
        elif not step.failed:
            failed.clear()
        else:
            if counts:
                counts[-1] += REPEATED if any(map(step.repeats, failed)) else 1
            failed.append(step)
    return counts


def normalise(advantages: Sequence[float]) -> float:
    """Return the factor that scales a batch's advantages to a root mean square of 1.

    The whole batch has one factor, as in REINFORCE++ (arXiv:2501.03262), not one per
    group. The factor is 1 if all advantages are 0.
    """
    if not advantages:
        return 1.0
    square = sum(a * a for a in advantages) / len(advantages)
    return 1.0 / math.sqrt(square) if square > _EPSILON**2 else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
