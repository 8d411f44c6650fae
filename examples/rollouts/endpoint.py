"""A model behind an address or of a provider, with a calculator.

Usage: endpoint.py MODEL, e.g. openai:gpt-4.1-mini or http://localhost:8000/v1#NAME
"""

import sys

from agentgym.rollout import run_rollouts_sync

if __name__ == "__main__":
    batch = run_rollouts_sync(
        ["What is 6 * 7?", "What is 2 ** 10?"],
        llm=sys.argv[1],
        agent="tool",
        tools=["calculator"],
        concurrency=8,
        max_steps=5,
    )
    for trajectory in batch.trajectories:
        calls = [(c.arguments, c.result) for c in trajectory.get_tool_calls()]
        print(trajectory.status, trajectory.answer, calls)
    print(batch.summary.prompt_tokens, "prompt tokens")
