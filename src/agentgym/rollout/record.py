"""Reads a rollout back from the store as a Trajectory."""

from itertools import islice
from typing import Any

from agentlightning.schemas import Rollout, RolloutState

from agentgym.core.trajectory import (
    ModelCall,
    RolloutStatus,
    Step,
    ToolCall,
    Trajectory,
)
from agentgym.rollout.events import RecordedEvent, answered_calls


def to_trajectory(rollout: Rollout, events: list[RecordedEvent]) -> Trajectory:
    """Return what a rollout recorded.

    Args:
        rollout: One that has ended.
        events: Those of its last attempt, in order.

    Returns:
        The trajectory; dropped, with its reason and without a reward, unless the
        rollout succeeded and a reward was reported.
    """
    task: dict[str, Any] = rollout.input
    calls = [call.to_model_call() for call in answered_calls(events)]
    outcomes = [
        ToolCall.model_validate(event.data)
        for event in events
        if event.event_type == "tool_call"
    ]
    reward = next((e.data for e in reversed(events) if e.event_type == "reward"), None)
    metadata = rollout.metadata.model_dump()
    common = {
        "rollout_id": rollout.rollout_id,
        "attempt": int(rollout.status.last_attempt_id or 0),
        "scenario": metadata["scenario"],
        "task_id": task["id"],
        "family": task["family"],
        "level": task["level"],
        "group": metadata["group"],
    }
    steps = _interleave(calls, outcomes)
    if rollout.status.state is not RolloutState.SUCCEEDED or reward is None:
        reason = rollout.status.error_message or "no reward was reported"
        return Trajectory(
            **common, steps=steps, status=RolloutStatus.DROPPED, reason=reason
        )
    success = bool(reward["success"])
    return Trajectory(
        **common,
        steps=steps,
        reward=reward["value"],
        reward_parts=reward["parts"],
        success=success,
        right_tool=reward["right_tool"],
        right_arguments=reward["right_arguments"],
        status=RolloutStatus.SUCCEEDED if success else RolloutStatus.FAILED,
        reason=reward["reason"],
        duration_s=reward["duration_s"],
    )


def _interleave(calls: list[ModelCall], outcomes: list[ToolCall]) -> list[Step]:
    """Put each outcome behind the model call that asked for it.

    Outcomes were recorded in that order, those of the agent's own code last.
    """
    steps: list[Step] = []
    rest = iter(outcomes)
    for call in calls:
        steps.append(call)
        steps.extend(islice(rest, len(call.tool_calls)))
    steps.extend(rest)
    return steps
