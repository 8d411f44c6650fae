"""Numbers of trajectories: of one, and of many with a report that adds up."""

from collections import Counter
from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory


class TrajectoryStats(BaseModel):
    """The numbers of one trajectory.

    Attributes:
        steps: Model calls.
        tool_calls: Tool calls, of which ``tool_errors`` did not end well.
        prompt_tokens: Of the calls whose tokens are known.
        response_tokens: The same.
        uncounted_calls: Model calls whose tokens nobody counted.
        reward: None if it was never scored.
        duration_s: Wall seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int
    response_tokens: int
    uncounted_calls: int
    reward: float | None
    duration_s: float

    @property
    def tokens(self) -> int:
        """Prompt and response tokens together, of the calls that were counted."""
        return self.prompt_tokens + self.response_tokens

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Count one trajectory."""
        calls, tools = trajectory.model_calls, trajectory.get_tool_calls()
        counted = [count for count in map(_tokens, calls) if count is not None]
        return cls(
            steps=len(calls),
            tool_calls=len(tools),
            tool_errors=sum(tool.outcome is not ToolOutcome.OK for tool in tools),
            prompt_tokens=sum(prompt for prompt, _ in counted),
            response_tokens=sum(response for _, response in counted),
            uncounted_calls=len(calls) - len(counted),
            reward=trajectory.reward,
            duration_s=trajectory.duration_s,
        )


class Summary(BaseModel):
    """The numbers of many trajectories.

    Attributes:
        rollouts: All of them: ``succeeded + failed + dropped``.
        reasons: Why rollouts failed or were dropped, by kind (what stands before
            the reason's colon), most frequent first. Their sum is
            ``failed + dropped``.
        steps: Model calls of all rollouts.
        tools: Tool calls by name; ``tool_outcomes`` by what became of them.
        uncounted_calls: Model calls that are in no token count.
        scored: Rollouts with a reward; ``mean_reward`` is over them, None if none.
        mean_duration_s: Wall seconds of a rollout, all counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollouts: int
    succeeded: int
    failed: int
    dropped: int
    reasons: dict[str, int]
    steps: int
    tool_calls: int
    tool_errors: int
    tools: dict[str, int]
    tool_outcomes: dict[str, int]
    prompt_tokens: int
    response_tokens: int
    uncounted_calls: int
    scored: int
    mean_reward: float | None
    mean_duration_s: float

    @property
    def adds_up(self) -> bool:
        """Whether every rollout is in one place, and every unsuccessful one named."""
        lost = self.failed + self.dropped
        return (
            self.rollouts == self.succeeded + lost
            and sum(self.reasons.values()) == lost
            and sum(self.tools.values()) == self.tool_calls
            and sum(self.tool_outcomes.values()) == self.tool_calls
        )


def summarize(trajectories: Iterable[Trajectory]) -> Summary:
    """Add up trajectories of any number of tasks."""
    all_of_them = list(trajectories)
    stats = [trajectory.stats() for trajectory in all_of_them]
    status = Counter(trajectory.status for trajectory in all_of_them)
    tools = [call for t in all_of_them for call in t.get_tool_calls()]
    rewards = [t.reward for t in all_of_them if t.reward is not None]
    lost = [t for t in all_of_them if t.status is not RolloutStatus.SUCCEEDED]
    return Summary(
        rollouts=len(all_of_them),
        succeeded=status[RolloutStatus.SUCCEEDED],
        failed=status[RolloutStatus.FAILED],
        dropped=status[RolloutStatus.DROPPED],
        reasons=_counted(reason_kind(t.reason) for t in lost),
        steps=sum(s.steps for s in stats),
        tool_calls=sum(s.tool_calls for s in stats),
        tool_errors=sum(s.tool_errors for s in stats),
        tools=_counted(call.name for call in tools),
        tool_outcomes=_counted(call.outcome.value for call in tools),
        prompt_tokens=sum(s.prompt_tokens for s in stats),
        response_tokens=sum(s.response_tokens for s in stats),
        uncounted_calls=sum(s.uncounted_calls for s in stats),
        scored=len(rewards),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        mean_duration_s=(
            sum(s.duration_s for s in stats) / len(stats) if stats else 0.0
        ),
    )


def reason_kind(reason: str) -> str:
    """Return the kind of a reason: ``"timeout"`` of ``"timeout: no end in 5 s"``."""
    return reason.partition(":")[0].strip() or "no reason given"


def _tokens(call: ModelCall) -> tuple[int, int] | None:
    """Return prompt and response tokens of a call, from its ids or its counts."""
    if call.prompt_ids or call.response_ids:
        return len(call.prompt_ids), len(call.response_ids)
    if call.prompt_tokens is None and call.response_tokens is None:
        return None
    return call.prompt_tokens or 0, call.response_tokens or 0


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
