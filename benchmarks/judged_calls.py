"""Calls that are sampled, judged and trained on per CPU-second, by size of a group.

    uv run python benchmarks/judged_calls.py --model FOLDER [--sizes 5x4 4x8 4x16]
        [--scenario "bfcl?categories=simple_python,multiple"] [--steps 2]

A size is tasks x attempts. Whole training steps, with tasks that replace those without
a training signal; start-up, measurements and the first step are left out. Each size
begins with the untouched model and has the same tasks first.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from machine import machine
from rollouts import tree_cpu

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.events import Event, StepReport
from agentgym.train.loop import TrainingLoop
from agentgym.train.plan import make_plan
from agentgym.train.resource_use import Began
from agentgym.train.run_folder import RunFolder

HEAD = "tasks x attempts | judged calls | groups that differ | answers' tokens"
HEAD += " | sampling s | update s | CPU-s | calls per CPU-second"


def main() -> None:
    """Measure each size in a process of its own; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="bfcl?categories=simple_python,multiple")
    parser.add_argument("--model", required=True)
    parser.add_argument("--sizes", nargs="+", default=["5x4", "4x8", "4x16"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(_row(options, options.one))
        return
    print(f"{options.scenario}, {options.model}; {machine()}\n\n| {HEAD} |")
    print("|" + "---|" * len(HEAD.split(" | ")), flush=True)
    for size in options.sizes:
        words = [sys.executable, *sys.argv, "--one", size]
        made = subprocess.run(words, check=True, capture_output=True, text=True)
        print(made.stdout.splitlines()[-1], flush=True)


class _EndError(Exception):
    """Ends a run after its last measured step."""


def _row(options: argparse.Namespace, size: str) -> str:
    tasks, attempts = map(int, size.split("x"))
    steps: list[StepReport] = []
    began = [0.0]

    def watch(event: Event) -> None:
        match event:
            case StepReport(step=1):
                began[0] = tree_cpu()
            case StepReport(step=step):
                steps.append(event)
                if step == 1 + options.steps:
                    raise _EndError

    with tempfile.TemporaryDirectory() as folder:
        config = TrainingConfig.create(
            scenario=options.scenario,
            framework="native",
            model=options.model,
            rollouts="calls",
            tasks_per_step=tasks,
            group_size=attempts,
            early_stop=False,
            test_tasks=2,
            eval_samples=1,
            eval_tasks=2,
            eval_every=10_000,
            forgetting_questions=0,
            tracker="none",
            yes=True,
            output=Path(folder),
            name="run",
        )
        run = RunFolder.create(config)
        loop = TrainingLoop(make_plan(config), run, watch, Began.now())
        with run.lock(), suppress(_EndError):
            loop.run()
        cpu = tree_cpu() - began[0]
    groups = sum(step.groups for step in steps)
    calls = attempts * groups
    differ = 1 - sum(step.skipped_groups for step in steps) / groups
    tokens = sum(step.sampled_tokens for step in steps)
    sampling = sum(step.rollout_seconds for step in steps)
    update = sum(step.update_seconds for step in steps)
    return (
        f"| {size} | {calls} | {100 * differ:.0f} % | {tokens} "
        f"| {sampling:.1f} | {update:.1f} | {cpu:.1f} | {calls / cpu:.2f} |"
    )


if __name__ == "__main__":
    main()
