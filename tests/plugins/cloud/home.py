"""Home: commands in processes of their own, and a pack that trains for ever."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agentgym.train.run_folder import RunFolder
from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.sshd import Machine

CLIENT = "tests.plugins.cloud.fakes.client"
TRAIN = ["train", "coding", "--framework", "native", "--yes"]
SMALL = {
    "TEST_TASKS": "4",
    "EVAL_TASKS": "4",
    "EVAL_SAMPLES": "1",
    "EVAL_EVERY": "2",
    "TASKS_PER_STEP": "2",
    "EARLY_STOP": "false",
}
SLEEPY = """
import hashlib, os, time
from pathlib import Path
from agentgym import Scenario
from .words import WORDS

key = os.environ.get("PLANTED_KEY", "")
Path("awake").write_text(hashlib.sha256(key.encode()).hexdigest())
time.sleep(1_000)
"""


def start(folder: Path, *words: str, **more: str) -> "subprocess.Popen[str]":
    """Start one command in ``folder``, as a shell would."""
    settings = {f"AGENTGYM_{key}": value for key, value in SMALL.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "agentgym", *words],
        cwd=folder,
        env={**os.environ, **settings, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def start_client(
    runpod: FakeRunPod, folder: Path, *words: str
) -> "subprocess.Popen[str]":
    """Start the command line with RunPod's fake."""
    settings = {f"AGENTGYM_{key}": value for key, value in SMALL.items()}
    return subprocess.Popen(
        [sys.executable, "-m", CLIENT, runpod.url, "agentgym", *words],
        cwd=folder,
        env={**os.environ, **settings, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def be_pods(machine: Machine, runpod: FakeRunPod) -> None:
    """Let the pods of RunPod's fake be this machine."""
    runpod.ssh = machine.port
    runpod.authorized = machine.folder / "authorized"


def awake(machine: Machine) -> list[Path]:
    """Return what a training of the pack ``sleepy`` has written on a machine."""
    return [*machine.home.rglob("inputs/awake")]


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=500)
    return process.returncode, out, err


def wait_for[T](found: Callable[[], T], process: "subprocess.Popen[str]") -> T:
    """Return what is found at last, as long as a process lives."""
    while not (value := found()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return value


def wait_for_steps(folder: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Wait until so many steps of the run ``x`` are on this machine."""
    run = RunFolder(folder / "runs" / "x")
    wait_for(lambda: len(run.checkpoints()) and len(run.metrics()) >= count, process)


def require_whole(run: RunFolder) -> None:
    """Check that no step is missing and none was done twice."""
    steps = [line["step"] for line in run.metrics()]
    count = len(steps)  # how many depends on the groups that were filled again
    assert count > 1
    assert steps == list(range(1, count + 1))
    assert run.record()["status"] == "done"
    assert run.checkpoints()[-1].name == f"step-{count:06d}"
    assert not (run.path / ".incoming").exists()
    assert run.record()["elsewhere"] is None


def make_sleepy(folder: Path) -> Path:
    """Write a pack that says that it is imported, and then sleeps."""
    pack = folder / "sleepy"
    pack.mkdir()
    (pack / "scenario.py").write_text(SLEEPY)
    (pack / "words.py").write_text("WORDS = ['one']\n")
    (pack / ".env").write_text("PLANTED_KEY=not-this-one\n")
    return pack
