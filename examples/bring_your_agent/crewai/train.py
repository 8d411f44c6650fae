"""Trains the crew of library.py on tasks.jsonl, and uses it afterwards.

uv run python train.py [EPISODES]
"""

import sys

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train(
        agent={"reference": "library:crew", "inputs": "inputs:of_task"},
        tasks="tasks.jsonl",
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.right_tool.value, "->", result.metrics.right_tool.value)
    print(result.agent.kickoff({"request": "Lend Emma to Tom."}).raw)
