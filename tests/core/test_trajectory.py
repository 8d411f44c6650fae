"""Trajectories round-trip and refuse what is newer."""

import pytest
from pydantic import ValidationError

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    RolloutStatus,
    ToolCall,
    Trajectory,
)


def make(rollout_id: str = "r1", reward: float | None = 0.5) -> Trajectory:
    return Trajectory(
        rollout_id=rollout_id,
        scenario="coding",
        task_id="t1",
        reward=reward,
        status=RolloutStatus.SUCCEEDED,
        steps=[
            ModelCall(
                prompt_ids=[1, 2],
                response_ids=[3],
                logprobs=[-0.1],
                tool_calls=[RequestedCall(id="c", name="lint", arguments="{}")],
            ),
            ToolCall(
                id="c", name="lint", outcome=ToolOutcome.RAISED, result="Error: x"
            ),
            ToolCall(name="read_file", arguments={"path": "ä.py"}),
            ModelCall(content="Done."),
        ],
    )


def test_to_dict_and_from_dict_are_inverse() -> None:
    trajectory = make()
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory


def test_tool_calls_are_found_in_order_and_by_name() -> None:
    trajectory = make()
    assert [c.name for c in trajectory.get_tool_calls()] == ["lint", "read_file"]
    assert [c.name for c in trajectory.get_tool_calls("lint")] == ["lint"]
    assert len(trajectory.model_calls) == 2


def test_a_missing_reward_stays_missing() -> None:
    assert make(reward=None).get_total_reward() is None
    assert make(reward=0.25).get_total_reward() == 0.25


def test_unknown_fields_and_other_versions_are_refused() -> None:
    data = make().to_dict()
    with pytest.raises(ValidationError, match="surprise"):
        Trajectory.from_dict({**data, "surprise": 1})
    with pytest.raises(ValidationError, match="version"):
        Trajectory.from_dict({**data, "version": 2})


def test_stats_count_ids_before_counts_and_say_what_is_uncounted() -> None:
    trajectory = make()
    trajectory.steps.append(
        ModelCall(content="x", prompt_tokens=7, response_tokens=5, messages=[])
    )
    stats = trajectory.stats()
    assert (stats.steps, stats.tool_calls, stats.tool_errors) == (3, 2, 1)
    assert (stats.prompt_tokens, stats.response_tokens) == (9, 6)
    assert (stats.tokens, stats.uncounted_calls, stats.reward) == (15, 1, 0.5)
