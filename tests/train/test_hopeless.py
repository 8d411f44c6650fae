"""Runs of the shipped policy that cannot work: what is said, and what is not saved.

They train for real: whether the policy learns the wrong thing is the point.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym import TrainedAgent
from tests.train.agents import saved_agent

SCENARIO = '''
import random

from agentgym import Environment, Reward, Scenario, Task, tool
from agentgym.core.tools import tool_specs

EVENTS = ["standup", "review", "dentist", "planning", "lunch"]


class Calendar(Environment):
    def __init__(self):
        self.moved = False

    @tool
    def list_events(self) -> list[str]:
        """List the events of today."""
        return EVENTS

    @tool
    def move_event(self, title: str, hour: int, reason: str) -> str:
        """Move an event to another hour."""
        return "moved"


class Calendars(Scenario):
    """Nobody can succeed; looking is paid if PAID."""

    name = "calendars"
    description = "Move events."
    difficulty = "beginner"
    estimated_time = "a minute"
    reward_range = (0.0, 1.0)

    def system_prompt(self):
        return "You keep a calendar."

    def tools(self):
        return tool_specs(Calendar)

    def tasks(self, split, seed, count):
        made = []
        for number in range(count):
            rng = random.Random(f"{split}-{seed}-{number}")
            event, hour = rng.choice(EVENTS), rng.randint(8, 18)
            text = f"Look at the events of today, then move {event} to {hour}."
            about = {"split": split, "seed": seed, "family": "move", "level": 1}
            made.append(Task(id=f"{split}-{number}", instruction=text, **about))
        return made

    def create_environment(self, task):
        return Calendar()

    def calculate_reward(self, task, environment, trajectory):
        names = [call.name for call in trajectory.get_tool_calls()]
        return Reward(
            PAID * ("list_events" in names),
            False,
            right_tool=float("move_event" in names),
        )
'''
SETTINGS = {
    "AGENTGYM_TEST_TASKS": "16",
    "AGENTGYM_EVAL_TASKS": "16",
    "AGENTGYM_EVAL_SAMPLES": "2",
    "AGENTGYM_EVAL_EVERY": "2",
    "AGENTGYM_TRACKER": "none",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def train(folder: Path, paid: float, *options: str) -> subprocess.CompletedProcess[str]:
    """Train on the calendar, as on a command line."""
    pack = folder / "calendars"
    pack.mkdir(exist_ok=True)
    (pack / "scenario.py").write_text(SCENARIO.replace("PAID", str(paid)))
    command = "train ./calendars --framework native --episodes 640 --name run"
    return subprocess.run(
        [sys.executable, "-m", "agentgym", *command.split(), *options],
        cwd=folder,
        env={**os.environ, **SETTINGS, "AGENTGYM_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )


def test_a_scenario_that_the_policy_cannot_do_is_told_before_training(
    tmp_path: Path,
) -> None:
    ended = train(tmp_path, 0.0)

    told = " ".join(ended.stderr.split())
    assert ended.returncode == 1, told
    assert "Not one of 32 attempts at 16 held-out tasks succeeded" in told
    assert "Try a stronger --model" in told
    assert "agentgym train --resume runs/run --yes" in told
    assert not (tmp_path / "runs" / "run" / "metrics.jsonl").exists()
    assert not (tmp_path / "home").exists()


def test_a_harmless_call_that_is_paid_is_no_goal_and_replaces_no_better_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    path = str(tmp_path / "calendars")
    about = {"scenario": "calendars", "config": {"scenario": path}}
    better = saved_agent(tmp_path / "better", "run", 0.1, 0.4, **about)
    assert better.name == "run@1"

    ended = train(tmp_path, 0.5, "--yes")

    said = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 0, said
    assert "Not one of 32 attempts" in said
    assert "goal reached" not in said
    assert "success criteria reached" not in said
    assert "Ended: validation has stopped rising." in said
    assert TrainedAgent.load("run").name == "run@1"
    kept = TrainedAgent.load("run@2")
    assert kept.metrics.pass_1.value == 0.0
    assert kept.scenario == path
