"""Summaries add up, whatever they are of."""

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import (
    ModelCall,
    Reason,
    RolloutStatus,
    ToolCall,
    Trajectory,
)
from agentgym.rollout.summary import summarize


def make(
    status: RolloutStatus,
    reason: str = "",
    detail: str = "",
    reward: float | None = None,
) -> Trajectory:
    return Trajectory(
        rollout_id="r",
        scenario="",
        task_id="t",
        status=status,
        reason=Reason(kind=reason, detail=detail) if reason else None,
        reward=reward,
        duration_s=2.0,
        steps=[
            ModelCall(prompt_tokens=3, response_tokens=1),
            ToolCall(name="add", outcome=ToolOutcome.RAISED),
            ToolCall(name="add"),
            ModelCall(),
        ],
    )


def test_summary_counts_each_rollout_once_and_names_each_reason() -> None:
    summary = summarize(
        [
            make(RolloutStatus.SUCCEEDED, reward=1.0),
            make(RolloutStatus.SUCCEEDED),
            make(RolloutStatus.FAILED, "max_steps", "no answer within 3", reward=0.0),
            make(RolloutStatus.DROPPED, "crash: ValueError", "x: y"),
            make(RolloutStatus.DROPPED, "crash: ValueError", "z: y"),
            make(RolloutStatus.DROPPED),
        ]
    )
    assert (summary.succeeded, summary.failed, summary.dropped) == (2, 1, 3)
    assert summary.reasons == {
        "crash: ValueError": 2,
        "max_steps": 1,
        "no reason given": 1,
    }
    assert (summary.scored, summary.mean_reward) == (2, 0.5)
    assert (summary.tools, summary.tool_errors) == ({"add": 12}, 6)
    assert (summary.prompt_tokens, summary.response_tokens) == (18, 6)
    assert (summary.uncounted_calls, summary.mean_duration_s) == (6, 2.0)


def test_summary_of_nothing_is_empty() -> None:
    summary = summarize([])
    assert (summary.rollouts, summary.mean_reward) == (0, None)
