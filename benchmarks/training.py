"""Episodes trained per CPU-second: ours without and with LangChain, beside TRL.

The same weights, tasks, group size and response limit for all; whole training steps
(rollouts, rewards, update, checkpoint where there is one), start-up left out: TRL's
by its own step timer, ours by warm-up steps.

    uv run --with trl --with jmespath python benchmarks/training.py
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import machine
from rollouts import measured

HERE = Path(__file__).parent


def main() -> None:
    """Measure each and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--trl-steps", type=int, default=1)
    options = parser.parse_args()
    rows = [
        (name, *ours(name, options.steps, options.warm_up))
        for name in ("native", "langchain")
    ]
    if options.trl_steps:
        rows.append(("TRL GRPOTrainer", *trl(options.trl_steps)))
    print(f"{machine()}\n")
    print("| | episodes | model calls | CPU-s | episodes/CPU-s | episodes/s |")
    print("|---|---|---|---|---|---|")
    for name, episodes, calls, wall, cpu in rows:
        print(
            f"| {name} | {episodes} | {calls} | {cpu:.1f} "
            f"| {episodes / cpu:.1f} | {episodes / wall:.1f} |"
        )


def ours(framework: str, steps: int, warm_up: int) -> tuple[int, int, float, float]:
    """Return episodes, model calls, wall and CPU seconds of ``steps`` steps."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.loop import TrainingLoop
    from agentgym.core.progress import Progress, StepReport
    from agentgym.core.run_folder import RunFolder

    class Stopwatch(Progress):
        """Measures from the end of the warm-up to the end of the last step."""

        def __init__(self) -> None:
            self.episodes = 0
            self.used: list[float] = []
            self._meter = measured()

        def stepped(self, report: StepReport) -> None:
            if report.step == warm_up:
                self.used = self._meter.__enter__()
            elif report.step == warm_up + steps:
                self._meter.__exit__(None, None, None)
            if report.step > warm_up:
                self.episodes += report.budget // (warm_up + steps)

    with tempfile.TemporaryDirectory() as folder:
        config = TrainingConfig.create(
            framework=framework,
            episodes=(warm_up + steps) * 128,
            early_stop=False,
            test_tasks=2,
            eval_samples=1,
            eval_every=10_000,
            output=Path(folder),
            name="run",
        )
        run = RunFolder.create(config)
        watch = Stopwatch()
        with run.lock():
            loop = TrainingLoop(config, run, watch)
            result = loop.run()
        share = steps / (warm_up + steps)
        calls = round(result.ledger.calls * share)
    return watch.episodes, calls, watch.used[0], watch.used[1]


def trl(steps: int) -> tuple[int, int, float, float]:
    """Return the same for TRL, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, str(HERE / "trl_grpo.py"), str(steps), str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        figures = json.loads(out.read_text())
    return (
        figures["episodes"],
        figures["calls"],
        figures["wall_seconds"],
        figures["cpu_seconds"],
    )


if __name__ == "__main__":
    main()
