"""Where the CPU time of a training goes: sampling, updates, and everything else.

Every process of the run is sampled by ``sampled/sitecustomize.py``, which takes some
CPU time itself; this is left out. ``--source`` profiles another checkout.

    uv run python benchmarks/profile_job.py --episodes 256
    uv run python benchmarks/profile_job.py --episodes 256 --source ../old/src
"""

import argparse
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from machine import machine

PR_SET_CHILD_SUBREAPER = 36
PLACES = {
    "learning": r"agentgym/engines/(learner|local/(loss|prefix_tree|imitation))\.py",
    "sampling": r"agentgym/engines/(local/|adapter)",
    "tokens": r"agentgym/(engines/tokens|models/chat_template|core/formats)",
    "gateway": r"agentgym/rollout/gateway",
    "store": r"agentgym/rollout/store",
    "tools, rewards": r"agentgym/(scenarios|sandbox)/",
    "workers": r"agentgym/(rollout/workers|integrations/(episode|run)\.py)",
    "framework": r"site-packages/(lang|openai|httpx|httpcore|autogen|crewai)",
}
"""The part of a stack: that of its innermost function in one of these places."""
PATTERNS = {part: re.compile(place) for part, place in PLACES.items()}
ROWS = {
    "sampling": "sampling: the model's forward passes",
    "learning": "learning: the updates",
    "tokens": "prompts to tokens, answers to calls",
    "gateway": "gateway",
    "store": "store",
    "workers": "workers",
    "framework": "framework: the agent, and its requests",
    "tools, rewards": "tools and rewards",
    "imports": "imports",
    "collector": "garbage collection",
    "rest": "the run's loop, records, reports",
    "other": "sandboxes, and processes that ended at once",
}


def main() -> None:
    """Profile a training and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="coding")
    parser.add_argument("--framework", default="langchain")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--source", type=Path, help="src of another checkout")
    parser.add_argument("--stacks", type=Path, help="a file for each stack's seconds")
    options, more = parser.parse_known_args()
    command = ["train", options.scenario, "--framework", options.framework]
    command += ["--episodes", str(options.episodes), "--yes", *more]
    with tempfile.TemporaryDirectory() as folder:
        total = trained(command, Path(folder), options.source)
        stacks = [*sampled(Path(folder))]
    if options.stacks:
        lines = (f"{kind};{stack} {1e6 * s:.0f}\n" for kind, stack, s in stacks)
        options.stacks.write_text("".join(lines))
    found: defaultdict[str, float] = defaultdict(float)
    for kind, stack, seconds in stacks:
        found[part_of(kind, stack)] += seconds
    total -= found.pop("sampler", 0.0)
    found["other"] = total - sum(found.values())
    print(f"{machine()}\n\n| part | CPU-s | share |\n|---|---|---|")
    for part, name in ROWS.items():
        print(f"| {name} | {found[part]:.1f} | {100 * found[part] / total:.0f} % |")
    print(f"| all of `agentgym {' '.join(command)}` | {total:.1f} | 100 % |")


def trained(command: list[str], folder: Path, source: Path | None) -> float:
    """Run ``agentgym`` with the sampler, and return the CPU seconds of its processes.

    Processes whose parent has ended become children of this one, and so they count.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    paths = [Path(__file__).parent / "sampled", *([source] if source else [])]
    environment = {
        **os.environ,
        "AGENTGYM_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join(str(path.absolute()) for path in paths),
        "SAMPLED_INTO": str(folder),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # imports would compile
    before = used()
    words = [sys.executable, "-m", "agentgym", *command, "--output", str(folder)]
    subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return used() - before


def used() -> float:
    """Return the CPU seconds of all children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def sampled(folder: Path) -> Iterator[tuple[str, str, float]]:
    """Yield each process's kind, and its stacks with their seconds."""
    for path in folder.glob("*.json"):
        argv, seconds = json.loads(path.read_text())
        is_worker = "agentgym.rollout.workers.forks" in argv
        for stack, spent in seconds.items():
            yield "worker" if is_worker else "main", stack, spent


def part_of(kind: str, stack: str) -> str:
    """Return the part of the run that a stack belongs to."""
    if stack.startswith("("):
        name = stack[1:].split(")")[0]
        if name != "native":
            return name
    if "importlib._bootstrap" in stack:
        return "imports"
    for function in reversed(stack.split(";")):
        for part, pattern in PATTERNS.items():
            if pattern.search(function):
                return part
    return "workers" if kind == "worker" else "rest"


if __name__ == "__main__":
    main()
