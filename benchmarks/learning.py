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
from agentgym.evaluate.metrics import Metrics, role_metrics
from agentgym.scenarios.registry import get_scenario

# Student's t, two-sided 95 %, for 2, 3, … values; then nearly normal.
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

_NONE = {"value": 0.0, "n": 0}
_ROWS = {
    "pass^1": "pass_1",
    "pass^k": "pass_k",
    "tool reliability": "tool_reliability",
    "right tool": "right_tool",
    "right arguments": "right_arguments",
    "sampled tokens": "tokens",
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
    name = f"{options.scenario}-{seed}"
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
            for metrics in measure_baselines(scenario, tasks, settings)[0].values()
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
    _print_parts(results)
    print()
    for key in ("wall_seconds", "cpu_seconds", "peak_memory_mb", "episodes", "steps"):
        print(f"{key}: {', '.join(f'{r[key]:.0f}' for r in results)}")
    print("stopped:", ", ".join(r["stopped"] for r in results))


def _print_parts(results: list[dict]) -> None:
    """Print the success of each family of tasks, and each role of a team."""
    print("\n| part | metric | before | after | gain |\n|---|---|---|---|---|")
    sides = [
        [Metrics.model_validate(result[side]) for result in results]
        for side in ("baseline", "metrics")
    ]
    families = dict.fromkeys(t.family for found in sides[0] for t in found.by_task)
    for name in families:
        own = [[_of_family(found, name) for found in side] for side in sides]
        _print_part(name or "all tasks", "pass^1", own)
    roles = [[role_metrics(found) for found in side] for side in sides]
    for role in dict.fromkeys(role for side in roles for each in side for role in each):
        for label in ("right_tool", "tool_reliability"):
            own = [
                [
                    dict(each[role])[label].model_dump() if role in each else _NONE
                    for each in side
                ]
                for side in roles
            ]
            _print_part(role, label.replace("_", " "), own)


def _of_family(metrics: Metrics, name: str) -> dict:
    tasks = [t for t in metrics.by_task if t.family == name]
    attempts = sum(t.attempts for t in tasks)
    value = sum(t.successes for t in tasks) / max(1, attempts)
    return {"value": value, "n": attempts}


def _print_part(name: str, label: str, sides: list[list[dict]]) -> None:
    known = [
        (before, after)
        for before, after in zip(*sides, strict=True)
        if before["n"] and after["n"]
    ]
    if not known:
        return
    gain = [{"value": a["value"] - b["value"], "n": b["n"]} for b, a in known]
    columns = ([b for b, _ in known], [a for _, a in known], gain)
    print(f"| {name} | {label} | {' | '.join(_mean(c, '') for c in columns)} |")


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
