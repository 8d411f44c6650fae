"""Summarize many trajectories: counts, means and reasons of failures."""

from collections import Counter
from collections.abc import Iterable

from agentgym.core.notebook import Shown
from agentgym.core.records import FrozenRecord
from agentgym.core.trajectory import NO_REASON, Numbers, RolloutStatus, Trajectory

_FIRST = 3  # number of rollouts that are named for each kind of reason


class DropKind(FrozenRecord):
    """The rollouts that were dropped for one kind of reason.

    Attributes:
        rollouts: Ids of the first few of these rollouts.
    """

    kind: str
    count: int
    rollouts: list[str]
    tasks: list[str]
    detail: str


class Summary(Shown, Numbers):
    """Totals and means over many trajectories.

    Attributes:
        rollouts: Number of rollouts: ``succeeded + failed + dropped``.
        reasons: Number of failed or dropped rollouts by kind of reason, the most
            frequent first. The sum is ``failed + dropped``.
        drops: The dropped rollouts by kind of reason, the most frequent first.
        tools: Number of tool calls by tool name.
        tool_outcomes: Number of tool calls by outcome.
        scored: Number of rollouts with a reward.
        mean_reward: Mean reward of the scored rollouts; None if there are none.
        mean_parts: Mean of each part of the reward over the scored rollouts; a missing
            part counts as 0. The sum is ``mean_reward`` if all rollouts have parts.
        mean_duration_s: Mean wall-clock seconds per rollout.
    """

    rollouts: int
    succeeded: int
    failed: int
    dropped: int
    reasons: dict[str, int]
    drops: list[DropKind]
    tools: dict[str, int]
    tool_outcomes: dict[str, int]
    scored: int
    mean_reward: float | None
    mean_parts: dict[str, float]
    mean_duration_s: float


def summarize(trajectories: Iterable[Trajectory]) -> Summary:
    """Compute the totals and means of trajectories, of one or several tasks."""
    every = list(trajectories)
    stats = [trajectory.stats() for trajectory in every]
    status = Counter(trajectory.status for trajectory in every)
    tools = [call for trajectory in every for call in trajectory.get_tool_calls()]
    rewards = [one.reward for one in stats if one.reward is not None]
    lost = [t for t in every if t.status is not RolloutStatus.SUCCEEDED]
    numbers = {n: sum(getattr(s, n) for s in stats) for n in Numbers.model_fields}
    return Summary(
        **numbers,
        rollouts=len(every),
        succeeded=status[RolloutStatus.SUCCEEDED],
        failed=status[RolloutStatus.FAILED],
        dropped=status[RolloutStatus.DROPPED],
        reasons=_counted((t.reason or NO_REASON).kind for t in lost),
        drops=_drops(every),
        tools=_counted(call.name for call in tools),
        tool_outcomes=_counted(call.outcome.value for call in tools),
        scored=len(rewards),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        mean_parts=_mean_parts(every),
        mean_duration_s=sum(s.duration_s for s in stats) / max(1, len(stats)),
    )


def _mean_parts(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    scored = [one.reward_parts for one in trajectories if one.reward is not None]
    names = dict.fromkeys(name for parts in scored for name in parts)
    return {
        name: sum(parts.get(name, 0.0) for parts in scored) / len(scored)
        for name in names
    }


def _drops(trajectories: Iterable[Trajectory]) -> list[DropKind]:
    by_kind: dict[str, list[Trajectory]] = {}
    for one in trajectories:
        if one.status is RolloutStatus.DROPPED:
            by_kind.setdefault((one.reason or NO_REASON).kind, []).append(one)
    return [
        DropKind(
            kind=kind,
            count=len(found),
            rollouts=[one.rollout_id for one in found[:_FIRST]],
            tasks=[one.task_id for one in found[:_FIRST]],
            detail=(found[0].reason or NO_REASON).detail,
        )
        for kind, found in sorted(by_kind.items(), key=lambda item: -len(item[1]))
    ]


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
