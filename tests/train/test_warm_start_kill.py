"""A warm start of the shipped policy that is killed: nothing finished is repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.train.run_folder import RunFolder
from tests.train.test_warm_start import NEVER, lamps

SETTINGS = {
    "TEST_TASKS": "4",
    "EVAL_TASKS": "4",
    "EVAL_SAMPLES": "2",
    "EVAL_EVERY": "1",
    "GROUP_SIZE": "2",
    "TASKS_PER_STEP": "4",
    "TRACKER": "none",
    "YES": "true",
    "DETERMINISTIC": "true",
    "EARLY_STOP": "false",
}
PHASES = ("plans", "learning", "test")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Train on the lamps, of which there are 48 training tasks."""
    variables = {f"AGENTGYM_{name}": value for name, value in SETTINGS.items()}
    variables["PYTHONPATH"] = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-m", "agentgym", "train", *options],
        cwd=folder,
        env={**os.environ, **variables, "AGENTGYM_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def new_run(folder: Path) -> list[str]:
    folder.mkdir()
    lamps(folder, broken=NEVER, most=48)
    settings = "--framework native --episodes 16 --warm-start --name run"
    return ["./lamps", *settings.split()]


def kill_at(process: subprocess.Popen[str], phase: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"warm start: {phase}:"):
            process.kill()
            process.wait()
            return
    raise AssertionError(f"{phase} never began")


def test_a_killed_warm_start_goes_on_and_changes_no_bit(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    said, _ = start(whole, *new_run(whole)).communicate(timeout=300)
    assert "warm start" in said, said
    arguments = new_run(killed)
    for phase in PHASES:
        kill_at(start(killed, *arguments), phase)
        arguments = ["--resume", "runs/run"]
    [checkpoint] = RunFolder(killed / "runs" / "run").checkpoints()
    learned = (checkpoint / "weights.safetensors").read_bytes()

    said, _ = start(killed, *arguments).communicate(timeout=300)

    assert "warm start: learning" not in said, said
    run, other = (RunFolder(f / "runs" / "run") for f in (killed, whole))
    steps = [line["step"] for line in run.metrics()]
    assert steps
    assert steps == [line["step"] for line in other.metrics()]
    for mine, its in zip(run.checkpoints(), other.checkpoints(), strict=True):
        weights = (mine / "weights.safetensors").read_bytes()
        assert weights == (its / "weights.safetensors").read_bytes()
        assert mine.name != "step-000000" or weights == learned
