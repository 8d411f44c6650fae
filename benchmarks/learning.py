"""Trains several seeds as a user would and prints before and after, with intervals.

Beside them stand two agents without a model, on the same tasks: one does nothing, one
calls every tool. A run that is there already (``--output``) is not made again.

uv run python benchmarks/learning.py --seeds 5 --framework langchain
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from machine import machine

from agentgym import TrainingConfig
from agentgym.evaluate.evaluation import measure_baselines
from agentgym.scenarios.registry import get_scenario

# Student's t, two-sided 95 %, for 2, 3, … values; then nearly normal.
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

_ROWS = {
    "pass^1": "pass_1",
    "pass^k": "pass_k",
    "tool reliability": "tool_reliability",
    "right tool": "right_tool",
    "right arguments": "right_arguments",
    "tokens per task": "tokens",
}


def main() -> None:
    """Run the seeds, ``--jobs`` at a time, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="coding")
    parser.add_argument("--framework", default="langchain")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("rest", nargs="*", help="further options of agentgym train")
    options = parser.parse_args()
    output = options.output or Path(tempfile.mkdtemp(prefix="agentgym-learning-"))
    with ThreadPoolExecutor(options.jobs) as runs:
        train = partial(_train, options, output)
        results = list(runs.map(train, range(options.seeds)))
    trivial = [_trivial(options.scenario, r["config"]) for r in results]
    _print(results, trivial, f"{options.scenario}, {options.framework}")


def _train(options: argparse.Namespace, output: Path, seed: int) -> dict:
    name = f"seed-{seed}"
    done = output / name / "result.json"
    if not done.exists():
        command = [sys.executable, "-m", "agentgym", "train", options.scenario]
        command += ["--framework", options.framework, "--seed", str(seed)]
        command += ["--name", name, "--output", str(output), *options.rest]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(done.read_text())


def _trivial(name: str, config: dict) -> list[list[dict]]:
    """Return both agents' metrics on each set of a run's held-out tasks."""
    settings = TrainingConfig.create(**config)
    scenario = get_scenario(name)
    sets = scenario.held_out(settings.seed, settings.test_tasks).values()
    return [
        [
            metrics.model_dump(mode="json")
            for metrics in measure_baselines(scenario, tasks, settings).values()
        ]
        for tasks in sets
    ]


def _print(results: list[dict], trivial: list[list[list[dict]]], what: str) -> None:
    print(f"{what}; {len(results)} seeds; {machine()}\n")
    print("| tasks | metric | nothing | everything | before | after | gain |")
    print("|---|---|---|---|---|---|---|")
    sets = ["held-out", *results[0]["breakdown"]]
    for index, name in enumerate(sets):
        for label, key in _ROWS.items():
            idle, busy = ([seed[index][n][key] for seed in trivial] for n in (0, 1))
            before = [_pair(r, name)[0][key] for r in results]
            after = [_pair(r, name)[1][key] for r in results]
            gain = [
                {"value": b["value"] - a["value"], "n": b["n"]}
                for a, b in zip(before, after, strict=True)
            ]
            columns = (idle, busy, before, after, gain)
            cells = " | ".join(_mean(estimates, key) for estimates in columns)
            print(f"| {name} | {label} | {cells} |")
    print()
    for key in ("wall_seconds", "cpu_seconds", "peak_memory_mb", "episodes", "steps"):
        print(f"{key}: {', '.join(f'{r[key]:.0f}' for r in results)}")
    print("stopped:", ", ".join(r["stopped"] for r in results))


def _pair(result: dict, name: str) -> tuple[dict, dict]:
    if name == "held-out":
        return result["baseline"], result["metrics"]
    before, after = result["breakdown"][name]
    return before, after


def _mean(estimates: list[dict], key: str) -> str:
    if any(estimate["n"] == 0 for estimate in estimates):
        return "-"
    values = [estimate["value"] for estimate in estimates]
    scale, unit = (1, "") if key == "tokens" else (100, " %")
    mean = scale * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.1f}{unit}"
    error = statistics.stdev(values) / math.sqrt(len(values))
    quantile = dict(enumerate(_T95, 2)).get(len(values), 1.96)
    half = scale * quantile * error
    return f"{mean:.1f} ± {half:.1f}{unit}"


if __name__ == "__main__":
    main()
