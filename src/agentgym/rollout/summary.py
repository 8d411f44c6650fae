"""Add up the numbers of many trajectories."""

from collections import Counter
from collections.abc import Iterable

from pydantic import BaseModel

from agentgym.core.trajectory import (
    NO_REASON,
    Numbers,
    RolloutStatus,
    Trajectory,
)

_FIRST = 3
"""Rollouts of each kind of reason that are named."""


class DropKind(BaseModel, frozen=True, extra="forbid"):
    """Rollouts that were dropped for one kind of reason.

    Attributes:
        kind: Their category; ``count`` of them.
        rollouts: The ids of the first few, with the ids of their ``tasks``.
        detail: The first one's reason in full.
    """

    kind: str
    count: int
    rollouts: list[str]
    tasks: list[str]
    detail: str


class Summary(Numbers, frozen=True):
    """The numbers of many trajectories; those of one are added up.

    Attributes:
        rollouts: All of them: ``succeeded + failed + dropped``.
        reasons: Why rollouts failed or were dropped, by kind, most frequent first.
            Their sum is ``failed + dropped``.
        drops: Why and which rollouts were dropped, the most frequent kind first.
        tools: Tool calls by name; ``tool_outcomes`` by their outcome.
        scored: Rollouts with a reward; ``mean_reward`` is over them, None if none.
        mean_parts: Mean of each named part of the reward over the scored rollouts, a
            missing part as 0; they add up to ``mean_reward`` where all have parts.
        mean_duration_s: Wall seconds of a rollout, all counted.
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

    @property
    def adds_up(self) -> bool:
        """Whether every rollout is in one place, and every unsuccessful one named."""
        lost = self.failed + self.dropped
        return (
            self.rollouts == self.succeeded + lost
            and sum(self.reasons.values()) == lost
            and sum(drop.count for drop in self.drops) == self.dropped
            and sum(self.tools.values()) == self.tool_calls
            and sum(self.tool_outcomes.values()) == self.tool_calls
        )


def summarize(trajectories: Iterable[Trajectory]) -> Summary:
    """Add up trajectories of any number of tasks."""
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
