"""What a run's steps took beside sampling and updating: batches, records, checkpoints.

Steps that measured validation tasks are left out.

    uv run agentgym train coding --framework langchain --episodes 768 --name timed
    uv run python benchmarks/overhead.py runs/timed
"""

import argparse
import json
from pathlib import Path
from statistics import median

from machine import machine
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    print(f"{machine()}\n")
    print("| run | steps | sampling, s | updating, s | the rest, s | of both |")
    print("|---|---|---|---|---|---|")
    for run in parser.parse_args().runs:
        steps = timed(run)
        if not steps:
            raise SystemExit(f"{run}: no two steps follow each other without measuring")
        sampling, updating, rest = map(median, zip(*steps, strict=True))
        share = sum(step[2] for step in steps) / sum(s + u for s, u, _ in steps)
        times = f"{sampling:.2f} | {updating:.2f} | {rest:.3f}"
        print(f"| {run.name} | {len(steps)} | {times} | {100 * share:.1f} % |")


def timed(run: Path) -> list[tuple[float, float, float]]:
    """Return the seconds of each step: sampling, updating, and all else."""
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    ended = {
        event.step: event.wall_time for event in events.Tensors("train/rollout_seconds")
    }
    measured = {
        event.step
        for name in events.Tags()["tensors"]
        if name.startswith("validation")
        for event in events.Tensors(name)
    }
    found = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        number = step["step"]
        if {number, number - 1} <= ended.keys() and not {number, number - 1} & measured:
            parts = step["rollout_seconds"], step["update_seconds"]
            found.append((*parts, ended[number] - ended[number - 1] - sum(parts)))
    return found


if __name__ == "__main__":
    main()
