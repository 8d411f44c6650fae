"""Episodes trained per CPU-second: ours without and with LangChain, beside TRL.

The same weights, tasks, prompt, group size and response limit for all; whole training
steps (rollouts, rewards, update, checkpoint where there is one), start-up left out:
TRL's by its own step timer, ours by warm-up steps.

    uv run --with trl python benchmarks/training.py
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from machine import machine
from rollouts import measured

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Measured:
    """What some training steps took, and what their episodes were like."""

    episodes: int
    model_calls: int
    tool_calls: int
    reward: float
    wall_seconds: float
    cpu_seconds: float

    def row(self, name: str) -> str:
        """Return the figures as a row of the table."""
        return (
            f"| {name} | {self.episodes} | {self.model_calls / self.episodes:.2f} "
            f"| {self.tool_calls / self.episodes:.2f} | {self.reward:.3f} "
            f"| {self.cpu_seconds:.1f} | {self.episodes / self.cpu_seconds:.1f} "
            f"| {self.episodes / self.wall_seconds:.1f} |"
        )


def main() -> None:
    """Measure each and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--trl-steps", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=16, help="per step, 8 rollouts of")
    options = parser.parse_args()
    rows = {
        name: ours(name, options.steps, options.warm_up, options.tasks)
        for name in ("native", "langchain")
    }
    if options.trl_steps:
        rows["TRL GRPOTrainer"] = trl(options.trl_steps, options.tasks)
    print(f"{machine()}\n")
    print(
        "| | episodes | model calls each | tool calls each | reward "
        "| CPU-s | episodes/CPU-s | episodes/s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, measured_steps in rows.items():
        print(measured_steps.row(name))


def ours(framework: str, steps: int, warm_up: int, tasks: int) -> Measured:
    """Measure ``steps`` steps after those of the warm-up."""
    from agentgym.core.config import TrainingConfig
    from agentgym.evaluate.events import Event, StepReport
    from agentgym.train.loop import TrainingLoop
    from agentgym.train.plan import make_plan
    from agentgym.train.resource_use import Began
    from agentgym.train.run_folder import RunFolder

    class Stopwatch:
        """Measures from the end of the warm-up to the end of the last step."""

        def __init__(self) -> None:
            self.used: list[float] = []
            self._meter = measured()

        def __call__(self, event: Event) -> None:
            match event:
                case StepReport(step=step) if step == warm_up:
                    self.used = self._meter.__enter__()
                case StepReport(step=step) if step == warm_up + steps:
                    self._meter.__exit__(None, None, None)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENTGYM_HOME"] = folder  # a trained agent of the user's stays
        config = TrainingConfig.create(
            framework=framework,
            tasks_per_step=tasks,
            episodes=(warm_up + steps) * tasks * 8,
            group_size=8,
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
            TrainingLoop(make_plan(config), run, watch, Began.now()).run()
        rewards = [line["reward"] for line in run.metrics()[warm_up:]]
        calls = events_since(run.path / "rollouts.db", warm_up + 1)
    return Measured(
        episodes=steps * tasks * config.group_size,
        model_calls=calls["model_request"],
        tool_calls=calls["tool_call"],
        reward=sum(rewards) / len(rewards),
        wall_seconds=watch.used[0],
        cpu_seconds=watch.used[1],
    )


def events_since(database: Path, step: int) -> dict[str, int]:
    """Count the events of training rollouts from ``step`` on, by type."""
    query = """SELECT event_type, COUNT(*) FROM events
        WHERE rollout_id >= ? AND rollout_id < 't' GROUP BY event_type"""
    with closing(sqlite3.connect(database)) as file:
        return dict(file.execute(query, (f"s{step:05d}",)).fetchall())


def trl(steps: int, tasks: int) -> Measured:
    """Measure TRL, in a process of its own; exit if its episodes used no tool."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        sizes = ["--steps", str(steps), "--tasks", str(tasks)]
        command = [sys.executable, str(HERE / "trl_grpo.py"), *sizes, str(out)]
        ended = subprocess.run(command, stdout=subprocess.DEVNULL)
        if ended.returncode:
            sys.exit(ended.returncode)
        return Measured(**json.loads(out.read_text()))


if __name__ == "__main__":
    main()
