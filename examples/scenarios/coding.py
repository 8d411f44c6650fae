"""Trains an agent on the coding scenario, then gives it a workspace of yours.

uv run python examples/scenarios/coding.py [EPISODES]
"""

import sys

from agentgym import Trainer

FILES = {"shop/prices.py": "VAT = 0.19\n", "tests/test_prices.py": "def test(): ...\n"}


def list_files(path: str = ".") -> str:
    """List the files in a folder."""
    return "\n".join(FILES)


def read_file(path: str) -> str:
    """Read a file."""
    return FILES.get(path, f"There is no file {path}.")


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    result = Trainer().train("coding", framework="langchain", episodes=episodes)
    before, after = result.baseline.pass_1.value, result.metrics.pass_1.value
    print(f"held-out tasks solved: {before:.0%} -> {after:.0%}")

    agent = result.to_langchain(tools=[list_files, read_file])
    for request in ("List the files in the project.", "Read the file shop/prices.py."):
        print(request)
        for message in agent.invoke({"messages": [("user", request)]})["messages"]:
            for call in getattr(message, "tool_calls", []):
                print(" ", call["name"], call["args"])
            if message.type == "tool":
                print("  ->", message.content)
