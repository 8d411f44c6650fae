"""Trains an agent on a scenario pack, which is named by its folder, with a warm start.

uv run python examples/scenarios/flight_booking.py [EPISODES]

The shipped policy has never seen a flight desk: it first imitates the calls that
training tasks need, and then trains by reinforcement learning.
"""

import sys
from pathlib import Path

from agentgym import Split, Trainer
from agentgym.rollout import run_rollouts_sync
from agentgym.scenarios import get_scenario

PACK = str(Path(__file__).parents[2] / "scenarios" / "flight_booking")

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train(
        PACK, framework="langchain", episodes=episodes, warm_start=True
    )
    before, after = result.baseline.pass_1.value, result.metrics.pass_1.value
    print(f"held-out tasks solved: {before:.0%} -> {after:.0%}")

    tasks = get_scenario(PACK).tasks(Split.TEST, seed=0, count=3)
    batch = run_rollouts_sync(tasks, llm=result.trained, reward=PACK)
    for task, trajectory in zip(tasks, batch.trajectories, strict=True):
        print(f"{trajectory.status}: {task.instruction}")
        for call in trajectory.get_tool_calls():
            print(" ", call.name, call.arguments, "->", call.result)
