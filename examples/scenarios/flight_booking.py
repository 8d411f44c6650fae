"""Trains an agent on a scenario that is new to the policy, with a warm start.

uv run python examples/scenarios/flight_booking.py [EPISODES]

The shipped policy has never seen a flight desk: it first imitates the calls that
training tasks need, and then trains by reinforcement learning.
"""

import sys

from agentgym import Split, Trainer
from agentgym.rollout import run_rollouts_sync
from agentgym.scenarios import get_scenario

SCENARIO = "flight_booking"

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train(
        SCENARIO, framework="langchain", episodes=episodes, warm_start=True
    )
    before, after = result.baseline.pass_1.value, result.metrics.pass_1.value
    print(f"held-out tasks solved: {before:.0%} -> {after:.0%}")

    tasks = get_scenario(SCENARIO).tasks(Split.TEST, seed=0, count=3)
    batch = run_rollouts_sync(tasks, llm=result.trained, reward=SCENARIO)
    for task, trajectory in zip(tasks, batch.trajectories, strict=True):
        print(f"{trajectory.status}: {task.instruction}")
        for call in trajectory.get_tool_calls():
            print(" ", call.name, call.arguments, "->", call.result)
