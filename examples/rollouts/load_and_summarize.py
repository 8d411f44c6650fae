"""Save trajectories, load them again, and look at their numbers."""

import sys
from pathlib import Path
from typing import Any

from agentgym.rollout import (
    check_continuity,
    read_jsonl,
    run_rollouts_sync,
    summarize,
)


async def llm(messages: list[dict[str, Any]], **options: Any) -> Any:
    """Call the calculator once, then say what it said."""
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    function = {"name": "calculator", "arguments": '{"expression": "6 * 7"}'}
    return {"tool_calls": [{"id": "call_1", "function": function}]}


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out.jsonl")
    run_rollouts_sync(
        ["What is 6 * 7?"] * 3,
        llm=llm,
        tools=["calculator"],
        save=out,
        reward=lambda task, trajectory: float(trajectory.answer == "42"),
    )
    trajectories = read_jsonl(out)
    stats = trajectories[0].stats()
    print(f"{stats.steps} model calls, {stats.tool_calls} tool calls")
    summary = summarize(trajectories)
    print(f"{summary.rollouts} rollouts, mean reward {summary.mean_reward}")
    for trajectory in trajectories:
        for loss in check_continuity(trajectory):
            print("context was lost:", loss)
