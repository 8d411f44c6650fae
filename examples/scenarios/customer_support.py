"""Trains an AutoGen agent to help a shop's customers, then shows it at work.

uv run python examples/scenarios/customer_support.py [EPISODES]
"""

import sys

from agentgym import Split, Trainer
from agentgym.rollout import run_rollouts_sync
from agentgym.scenarios import get_scenario

SCENARIO = "customer_support"

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train(SCENARIO, framework="autogen", episodes=episodes)
    before, after = result.baseline.pass_1.value, result.metrics.pass_1.value
    print(f"held-out tasks solved: {before:.0%} -> {after:.0%}")

    # result.to_autogen() is the agent for your own shop; here it meets three customers
    # of the scenario's held-out tasks, each with a database of its own.
    tasks = get_scenario(SCENARIO).tasks(Split.TEST, seed=0, count=3)
    batch = run_rollouts_sync(tasks, llm=result.trained, reward=SCENARIO)
    for task, trajectory in zip(tasks, batch.trajectories, strict=True):
        print(f"{trajectory.status}: {task.instruction}")
        for call in trajectory.get_tool_calls():
            print(" ", call.name, call.arguments, "->", call.result)
