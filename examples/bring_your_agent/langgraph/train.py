"""Trains the graph of clinic.py on tasks.jsonl, and uses it afterwards.

uv run python train.py [EPISODES]
"""

import sys

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train(
        agent="clinic:graph",
        tasks="tasks.jsonl",
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.right_tool.value, "->", result.metrics.right_tool.value)
    thread = {"configurable": {"thread_id": "front desk"}}
    asked = {"messages": [("user", "Cancel visit A100.")]}
    print(result.agent.invoke(asked, thread)["messages"][-1].content)
