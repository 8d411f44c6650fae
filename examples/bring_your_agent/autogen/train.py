"""Trains the agent of warehouse.py on tasks.jsonl, and uses it afterwards.

uv run python train.py [EPISODES]
"""

import asyncio
import sys

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train(
        agent="warehouse:agent",
        tasks="tasks.jsonl",
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.right_tool.value, "->", result.metrics.right_tool.value)
    print(asyncio.run(result.agent.run(task="Order 20 bolts.")).messages[-1].to_text())
