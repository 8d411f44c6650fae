"""Wall seconds from the start of `agentgym train` to its first table, and to its end.

For each app of examples/bring_your_agent: its module, its tasks file of about thirty
lines, and no other preparation. The first table is the baseline on held-out tasks.

    uv run python benchmarks/first_table.py --episodes 256
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from machine import machine

APPS = Path(__file__).parents[1] / "examples" / "bring_your_agent"
AGENTS = {
    "langgraph": ["clinic:graph"],
    "autogen": ["warehouse:agent"],
    "crewai": ["library:crew", "--inputs", "inputs:of_task"],
}


def main() -> None:
    """Train each app with a small budget and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=256)
    episodes = parser.parse_args().episodes
    print(f"{machine()}\n")
    print(
        f"| | lines of tasks | s to the first table | s in all, {episodes} episodes |"
    )
    print("|---|---|---|---|")
    for framework, agent in AGENTS.items():
        folder = APPS / framework
        lines = len((folder / "tasks.jsonl").read_text().splitlines())
        first, whole = timed(folder, [*agent, "--episodes", str(episodes)])
        print(f"| {framework} | {lines} | {first:.0f} | {whole:.0f} |")


def timed(folder: Path, agent: list[str]) -> tuple[float, float]:
    """Return the seconds until the first table was printed, and until the end."""
    command = [str(Path(sys.executable).parent / "agentgym"), "train", "--yes"]
    command += ["--tasks", "tasks.jsonl", "--agent", *agent]
    with TemporaryDirectory() as scratch:
        paths = {"AGENTGYM_HOME": f"{scratch}/home", "PYTHONUNBUFFERED": "1"}
        started = time.monotonic()
        with subprocess.Popen(
            [*command, "--output", f"{scratch}/runs"],
            cwd=folder,
            env={**os.environ, **paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            said, first = [], 0.0
            for line in process.stdout:
                said.append(line)
                if not first and "tool reliability" in line:
                    first = time.monotonic() - started
        if process.returncode or not first:
            raise SystemExit("".join(said))
        return first, time.monotonic() - started


if __name__ == "__main__":
    main()
