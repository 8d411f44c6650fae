"""Train the hotel as it is, then ask the trained one.

python train.py [EPISODES]
"""

import asyncio
import sys

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    result = Trainer().train(
        agent="hotel:workflow",
        tasks="tasks.jsonl",
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    for event in asyncio.run(result.agent.run("Is a suite free?")):
        print(event.type, getattr(event, "executor_id", None) or "")
