"""Measure the CPU time of an attempt by a program that asks its model once.

    uv run python benchmarks/programs.py --episodes 256 --concurrency 64

Three programs ask the same: a shell script with curl; a Python script that imports
asyncio, as clients of models do, with a process an attempt; and the same script with
processes that take 50 tasks each. AgentGym's own time is that of its process and of the
one that ends programs. The program's, with its children, is that of whatever program
you have: the more it imports, the more there is to save.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.plugins.collect.batch import run_rollouts
from agentgym.programs.process import watcher

SHELL = """#!/bin/sh
curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Content-Type: application/json" \\
  -d '{"model": "policy", "messages": [{"role": "user", "content": "Hello"}]}'
"""
PYTHON = """
import asyncio, json, os, sys, urllib.request

def answer(request):
    body = {"model": "policy", "messages": [{"role": "user", "content": request}]}
    asked = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode()
    )
    with urllib.request.urlopen(asked) as said:
        return json.load(said)["choices"][0]["message"]["content"]

if len(sys.argv) > 1:
    for line in sys.stdin:
        task = json.loads(line)
        os.environ.update(task["variables"])
        print(json.dumps({"answer": answer(task["instruction"])}), flush=True)
else:
    print(answer(sys.stdin.read()))
"""


@dataclass(frozen=True)
class Measured:
    """Milliseconds of CPU an attempt: AgentGym's, the guard's, the program's."""

    wall_s: float
    own_ms: float
    guard_ms: float
    program_ms: float


def guard_seconds() -> float:
    """Return the CPU seconds of the process that ends programs."""
    words = Path(f"/proc/{watcher().pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(who: int) -> float:
    """Return the CPU seconds of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def llm(messages: list[Any], **options: Any) -> str:
    """Answer at once."""
    return "Hello."


async def measure(command: str, episodes: int, concurrency: int) -> Measured:
    """Run a program so often; return its times."""
    own, children = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    before = cpu_seconds(own), cpu_seconds(children), guard_seconds()
    began = time.perf_counter()
    made = await run_rollouts(
        ["Hello."] * episodes,
        llm=llm,
        agent=f"command:{command}",
        concurrency=concurrency,
    )
    wall_s = time.perf_counter() - began
    after = cpu_seconds(own), cpu_seconds(children), guard_seconds()
    if made.summary.succeeded != episodes:
        raise SystemExit(f"only {made.summary.succeeded} succeeded: {made.summary}")
    used = [1000 * (b - a) / episodes for a, b in zip(before, after, strict=True)]
    return Measured(wall_s, own_ms=used[0], program_ms=used[1], guard_ms=used[2])


async def measure_all(episodes: int, concurrency: int) -> dict[str, Measured]:
    """Return the times of the three programs."""
    with tempfile.TemporaryDirectory() as folder:
        shell, python = Path(folder) / "ask.sh", Path(folder) / "ask.py"
        shell.write_text(SHELL)
        python.write_text(PYTHON)
        commands = {
            "shell, a process an attempt": f"sh {shell}",
            "Python, a process an attempt": f"{sys.executable} {python}",
            "Python, a process for 50": f"{sys.executable} {python} {{tasks:50}}",
        }
        found = {}
        for name, command in commands.items():
            found[name] = await measure(command, episodes, concurrency)
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=64)
    given = parser.parse_args()
    sys.stdout.write(
        f"{given.episodes} attempts, {given.concurrency} at a time; CPU ms of one\n\n"
        "| program | AgentGym | what ends programs | the program | wall s in all |\n"
        "|---|---:|---:|---:|---:|\n"
    )
    found = asyncio.run(measure_all(given.episodes, given.concurrency))
    for name, each in found.items():
        sys.stdout.write(
            f"| {name} | {each.own_ms:.1f} | {each.guard_ms:.1f} | "
            f"{each.program_ms:.1f} | {each.wall_s:.1f} |\n"
        )


if __name__ == "__main__":
    main()
