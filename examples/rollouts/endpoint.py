"""A model behind an address or of a provider, with a calculator.

Usage: endpoint.py MODEL, e.g. openai:gpt-4.1-mini or http://localhost:8000/v1#NAME
"""

import argparse

from agentgym.rollout import run_rollouts_sync

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ask a model with a calculator.")
    parser.add_argument("model", help="openai:gpt-4.1-mini, http://HOST:PORT/v1#NAME")
    model = parser.parse_args().model
    batch = run_rollouts_sync(
        ["What is 6 * 7?", "What is 2 ** 10?"],
        llm=model,
        agent="tool",
        tools=["calculator"],
        concurrency=8,
        max_steps=5,
    )
    for trajectory in batch.trajectories:
        calls = [(c.arguments, c.result) for c in trajectory.get_tool_calls()]
        print(trajectory.status, trajectory.answer, calls)
    print(batch.summary.prompt_tokens, "prompt tokens")
