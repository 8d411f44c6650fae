"""Measure AgentGym's own CPU time of an attempt by a program that asks its model once.

    uv run python benchmarks/programs.py --episodes 256 --concurrency 64

The program is a shell script with curl. Its CPU time, and its children's, is not
counted: it is that of whatever program you have. The process that ends programs is.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentgym.programs.process import watcher
from agentgym.rollout.solo.batch import run_rollouts

SCRIPT = """#!/bin/sh
curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Content-Type: application/json" \\
  -d '{"model": "policy", "messages": [{"role": "user", "content": "Hello"}]}'
"""


def guard_seconds() -> float:
    """Return the CPU seconds of the process that ends programs."""
    words = Path(f"/proc/{watcher().pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def llm(messages: list[Any], **options: Any) -> str:
    """Answer at once."""
    return "Hello."


async def measure(episodes: int, concurrency: int) -> dict[str, float]:
    """Run the script so often; return seconds and milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "ask.sh"
        script.write_text(SCRIPT)
        agent = f"command:sh {script}"
        before = resource.getrusage(resource.RUSAGE_SELF)
        guarded, began = guard_seconds(), time.perf_counter()
        made = await run_rollouts(
            ["Hello."] * episodes, llm=llm, agent=agent, concurrency=concurrency
        )
        wall_s = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
    if made.summary.succeeded != episodes:
        raise SystemExit(f"only {made.summary.succeeded} succeeded: {made.summary}")
    own_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    guard_s = guard_seconds() - guarded
    return {
        "wall_s": wall_s,
        "own_ms": 1000 * own_s / episodes,
        "guard_ms": 1000 * guard_s / episodes,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    given = parser.parse_args()
    found = asyncio.run(measure(given.episodes, given.concurrency))
    sys.stdout.write(
        "| measured | figure |\n|---|---:|\n"
        f"| attempts | {given.episodes} |\n"
        f"| at a time | {given.concurrency} |\n"
        f"| wall s | {found['wall_s']:.1f} |\n"
        f"| CPU ms an attempt, this process | {found['own_ms']:.1f} |\n"
        f"| CPU ms an attempt, the process that ends programs | "
        f"{found['guard_ms']:.1f} |\n"
    )


if __name__ == "__main__":
    main()
