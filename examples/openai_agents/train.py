"""Train the bike shop as it is, then ask the trained one.

python train.py [EPISODES]
"""

import asyncio
import sys

from agents import Runner
from bike_shop import desk

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    result = Trainer().train(
        agent=desk, tasks="tasks.jsonl", episodes=episodes, warm_start=True, yes=True
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    answer = asyncio.run(Runner.run(result.agent, "How many bells are there?"))
    for item in answer.new_items:
        print(f"{item.agent.name}: {item.type}")
