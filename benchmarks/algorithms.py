"""Trains one agent with each algorithm and prints before and after, with intervals.

All runs have the same seed, tasks, sizes and number of episodes, so the measurement
before is of the same policy. ``rloo+kl`` is ``rloo`` with ``kl_coefficient`` 0.01. A
run that is there already (``--output``) is not made again.

uv run python benchmarks/algorithms.py --framework native --episodes 768
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from machine import machine

from agentgym.evaluate.compare import compare
from agentgym.train.result import TrainingResult

KL = "+kl"
CHOICES = ("rloo", f"rloo{KL}", "grpo", "dr_grpo", "dapo", "reinforce++")


def main() -> None:
    """Run the algorithms one after the other, and print a row after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="coding")
    parser.add_argument("--framework", default="native")
    parser.add_argument("--algorithms", nargs="+", default=CHOICES, metavar="NAME")
    parser.add_argument("--episodes", type=int, default=768)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--rest", nargs="*", default=[], help="KEY=VALUE settings")
    options = parser.parse_args()
    output = options.output or Path(tempfile.mkdtemp(prefix="agentgym-algorithms-"))
    print(
        f"{options.scenario}, {options.framework}, {options.episodes} episodes, ",
        end="",
    )
    print(f"seed {options.seed}; {machine()}\n")
    print(
        "| algorithm | tool reliability | pass^1 | gain of pass^1 | steps "
        "| groups without a signal | gradient norm | clipped tokens | CPU-s |"
    )
    print("|---|---|---|---|---:|---:|---:|---:|---:|", flush=True)
    for name in options.algorithms:
        print(_row(name, _train(options, output, name)), flush=True)


def _train(options: argparse.Namespace, output: Path, name: str) -> Path:
    """Train with an algorithm unless that was done; return the run's folder."""
    run = output / name.replace("++", "_pp").replace("+", "_")
    if TrainingResult.load(run) is None:
        command = [sys.executable, "-m", "agentgym", "train", options.scenario]
        command += ["--framework", options.framework, "--seed", str(options.seed)]
        command += [
            "--episodes",
            str(options.episodes),
            "--yes",
            "--set",
            "tracker=none",
        ]
        command += ["--set", "tracker=none"]
        command += ["--set", f"algorithm={name.removesuffix(KL)}"]
        command += ["--name", run.name, "--output", str(output)]
        settings = ["early_stop=false", "forgetting_questions=0", *options.rest]
        settings += ["kl_coefficient=0.01"] * name.endswith(KL)
        for setting in (f"eval_every={options.episodes}", *settings):
            command += ["--set", setting]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run


def _row(name: str, run: Path) -> str:
    """Return a table row of a finished run."""
    result = TrainingResult.load(run)
    assert result is not None
    steps = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    gain = compare(result.baseline, result.metrics).differences["pass_1"]
    groups = sum(step["groups"] for step in steps)
    skipped = sum(step["skipped_groups"] for step in steps)
    cells = [
        name,
        *(
            f"{100 * float(getattr(result.baseline, key)):.0f} → {_interval(after)} %"
            for key in ("tool_reliability", "pass_1")
            for after in [getattr(result.metrics, key)]
        ),
        f"{_interval(gain)} points",
        str(result.steps),
        f"{skipped} of {groups}",
        f"{fmean(step['grad_norm'] for step in steps):.2f}",
        f"{100 * fmean(step['clip_fraction'] for step in steps):.2f} %",
        f"{result.cpu_seconds:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _interval(found: object) -> str:
    """Return an estimate in percent with its interval."""
    value, low, high = (100 * getattr(found, part) for part in ("value", "low", "high"))
    return f"{value:.0f} [{low:.0f}, {high:.0f}]"


if __name__ == "__main__":
    main()
