"""Credit: from the rewards of a group of rollouts to the advantage of each.

Two baselines, both from the group itself, so that no value model is needed:

- RLOO (arXiv:2402.14740): the mean reward of the *other* rollouts of the group.
- GRPO (arXiv:2402.03300): the group's mean, divided by its standard deviation.

Division by each group's own deviation weights nearly-solved and nearly-hopeless tasks
up (Dr. GRPO, arXiv:2503.20783), so RLOO does without. Its scale does not depend on
the reward's because of one division by the root mean square over the whole batch
(:func:`normalise`), which leaves the weights between tasks alone.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory

Algorithm = Literal["rloo", "grpo"]

REPEATED = 3
"""How many failures a failed call counts that merely repeats one."""

_EPSILON = 1e-6


def group_advantages(
    rewards: Sequence[Sequence[float] | None],
    algorithm: Algorithm,
    charges: Sequence[Sequence[float]] | None = None,
) -> list[list[float] | None] | None:
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
        if algorithm == "grpo":
            return (reward - total / len(scores)) / spread
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
