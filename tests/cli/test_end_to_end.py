"""The real thing, small: train through LangChain, Ctrl-C, resume, evaluate, use."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentgym.models.nano import nano_path
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from tests.cli.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SETTINGS = {
    "TEST_TASKS": "2",
    "EVAL_TASKS": "2",
    "EVAL_SAMPLES": "1",
    "EVAL_EVERY": "2",
    "TASKS_PER_STEP": "2",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model that can learn something."""
    folder = tmp_path_factory.mktemp("models") / "own"
    shutil.copytree(nano_path(), folder)
    return folder


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start one command in ``folder``, as a shell would."""
    return subprocess.Popen(
        [sys.executable, "-m", "agentgym", *words],
        cwd=folder,
        env={**os.environ, **{f"AGENTGYM_{k}": v for k, v in SETTINGS.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str) -> str:
    """Run one command and return its standard output."""
    process = start(folder, *words)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def test_reader_that_leaves_ends_the_run_quietly(tmp_path: Path, model: Path) -> None:
    words = f"train coding --framework native --model {model} --name x --gpu none"
    process = start(tmp_path, *words.split(), "--episodes", "2000")
    assert process.stdout is not None
    while "Baseline" not in process.stdout.readline() and process.poll() is None:
        pass
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 1
    folder = RunFolder(tmp_path / "runs" / "x")
    assert folder.record()["status"] == "interrupted"
    assert folder.checkpoints()


def test_train_interrupt_resume_and_use(
    tmp_path: Path, model: Path, agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"train coding --framework langchain --model {model} --name x --gpu none"
    first = start(tmp_path, *words.split(), "--episodes", "2000")
    folder = RunFolder(tmp_path / "runs" / "x")
    while len(folder.metrics()) < 2 and first.poll() is None:
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate()
    assert first.returncode == 130, err
    assert "Baseline" in out
    assert "agentgym train --resume" in err
    assert "Traceback" not in err
    done = len(folder.metrics())
    assert f"Interrupted after step {done};" in err
    assert "interrupted" in run(tmp_path, "runs", "list")

    episodes = str(16 * (done + 2))
    out = run(tmp_path, "train", "--resume", "x", "--episodes", episodes)
    assert f"Continuing after step {done}" in out
    assert "Before and after" in out
    steps = [line["step"] for line in folder.metrics()]
    assert steps == list(range(1, len(steps) + 1))
    assert (
        done < len(steps) <= done + 2
    )  # groups that were replaced spend rollouts, too
    assert (folder.path / "report.md").exists()

    for path in (
        folder.path,
        folder.path / "rollouts.db",
        *folder.path.glob("*.json*"),
        *folder.path.glob("*.log"),
    ):
        assert path.stat().st_mode & 0o077 == 0, path

    ledger = json.loads((folder.path / "result.json").read_text())["ledger"]
    left_out = [*ledger["masked"].values(), *ledger["dropped"].values()]
    assert ledger["trained"] + sum(left_out) == ledger["calls"] > 0
    for name, value in SETTINGS.items():
        monkeypatch.setenv(f"AGENTGYM_{name}", value)
    shown = agentgym("eval", "coding", "--agent", "x@1", "--json")
    evaluation = json.loads(shown.out)
    assert evaluation["metrics"]["tasks"] == 2
    assert set(evaluation["baselines"]) == {"do-nothing", "call-everything"}
    agent = TrainedAgent.load("x@1").to_langchain()
    answer = agent.invoke({"messages": [("user", "Which files are there?")]})
    assert answer["messages"][1].type == "ai"
