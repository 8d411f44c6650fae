"""Which thread of the trainer a step's rollouts keep busy; prints a Markdown table.

    uv run python benchmarks/threads.py [--framework langchain] [--rounds 4]

Each round is the rollouts of 16 tasks, eight attempts each, by the untrained policy.
The first one warms up and is left out. CPU seconds by thread are the kernel's
(/proc/self/task); below them stand the worker process and what it started (sandbox).
"""

import argparse
import os
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
from machine import machine

from agentgym import Split, TrainingConfig
from agentgym.engines.registry import create_engine
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario

TASKS, ATTEMPTS = 16, 8


def cpu_seconds() -> Counter[str]:
    """Return the CPU seconds so far of this process's threads, by name, and workers."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    seconds: Counter[str] = Counter()
    for folder in Path("/proc/self/task").iterdir():
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        name = names.get(int(folder.name), "others")
        seconds[name] += ticks / os.sysconf("SC_CLK_TCK")
    for child in psutil.Process().children(recursive=True):
        seconds["worker processes"] += sum(child.cpu_times()[:4])
    return seconds


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="coding")
    parser.add_argument("--framework", default="langchain")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    config = TrainingConfig.create(
        scenario=options.scenario, framework=options.framework
    )
    tasks = get_scenario(config.scenario).tasks(Split.TRAIN, config.seed, TASKS)
    engine = create_engine(config)
    wall, spent = 0.0, Counter[str]()
    with (
        tempfile.TemporaryDirectory() as folder,
        RolloutSession(config, engine.policy, Path(folder), 1) as session,
    ):
        for number in range(options.rounds + 1):
            requests = [
                RolloutRequest(
                    rollout_id=f"r{number}-t{index}-{attempt}",
                    task=task,
                    train=True,
                    group=f"r{number}-t{index}",
                    step=0,
                )
                for index, task in enumerate(tasks)
                for attempt in range(ATTEMPTS)
            ]
            with engine.policy.decoder.paused():  # forgets, as an update does
                before, began = cpu_seconds(), time.monotonic()
            session.run(requests, lambda _: None)
            if number:
                wall += time.monotonic() - began
                spent += cpu_seconds() - before
    engine.close()
    print(f"{TASKS * ATTEMPTS} rollouts a round, {options.framework}; {machine()}\n")
    print("| thread | CPU-s per round |\n|---|---:|")
    for name, seconds in spent.most_common():
        print(f"| {name} | {seconds / options.rounds:.2f} |")
    print(f"| wall seconds | {wall / options.rounds:.2f} |")


if __name__ == "__main__":
    main()
