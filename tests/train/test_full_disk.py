"""A disk that fills under a run, and a store that hangs: the run ends, and goes on."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from agentgym.train.run_folder import RunFolder
from tests.variants import first_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SETTINGS = {
    "framework": "native",
    "episodes": 48,
    "group_size": 4,
    "tasks_per_step": 4,
    "test_tasks": 2,
    "eval_samples": 1,
    "eval_every": 2,
    "eval_tasks": 2,
    "early_stop": False,
    "task_choice": "uniform",  # as many rollouts in each step
    "name": "run",
}
_STEPS = [1, 2, 3]
_LEFT = 40 * 2**10  # bytes; less than a checkpoint, or a step's rollouts, take


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of its own, large enough for a run to start."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(place)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if made.returncode:
        pytest.skip(f"no file system can be mounted: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Keep the disk all but full, also where the run frees some space."""
    done = threading.Event()
    filler = disk / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while not done.wait(0.005):
                free = shutil.disk_usage(disk).free - _LEFT
                if free > 0:
                    file.write(bytes(min(free, 2**24)))

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        filler.unlink()


def train(
    folder: Path, *words: str, deterministic: bool = False
) -> subprocess.Popen[str]:
    """Start or resume a run; its home is on another disk than ``folder``."""
    home = folder.parent / f"home-{folder.name}"
    config = folder.parent / "config.json"
    config.write_text(json.dumps({**_SETTINGS, "deterministic": deterministic}))
    new = ["coding", "--config", str(config), "--output", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "agentgym", "train", *(words or new)],
        env={**os.environ, "AGENTGYM_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], ready: Callable[[], object]) -> None:
    while not ready() and process.poll() is None:
        time.sleep(0.01)


def weights_of(run: RunFolder) -> dict[str, bytes]:
    tensors = load_file(run.path / "agent" / "model" / "model.safetensors")
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


@pytest.mark.sweep
def test_a_full_disk_ends_a_run_that_goes_on_as_if_nothing_had_been(
    tmp_path: Path, small_disk: Path
) -> None:
    other = tmp_path / "whole"
    other.mkdir()
    whole = train(other, deterministic=True)
    run = RunFolder(small_disk / "run")
    process = train(small_disk, deterministic=True)
    wait_for(process, run.metrics)
    with filled(small_disk):
        out, err = process.communicate()
    assert process.returncode == 1, err
    assert "Paused: the disk is full" in out
    assert f"Continue with: agentgym train --resume {run.path}" in err
    assert "Traceback" not in err
    steps = [line["step"] for line in run.metrics()]
    assert steps == _STEPS[: len(steps)]

    process = train(small_disk, "--resume", str(run.path))
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert [line["step"] for line in run.metrics()] == _STEPS
    _, err = whole.communicate()
    assert whole.returncode == 0, err
    assert weights_of(run) == weights_of(RunFolder(other / "run"))
    with sqlite3.connect(run.path / "rollouts.db") as database:
        rows = dict(
            database.execute(
                "SELECT step, count(*) FROM rollouts WHERE is_train GROUP BY step"
            )
        )
    assert rows == dict.fromkeys(_STEPS, 16)


def test_a_run_waits_for_space_that_comes_back(
    tmp_path: Path, small_disk: Path
) -> None:
    run = RunFolder(small_disk / "run")
    process = train(small_disk)
    wait_for(process, run.metrics)
    assert process.stdout is not None
    with filled(small_disk):
        for line in process.stdout:
            if "Paused" in line:
                break
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "Writing goes on." in out
    assert [line["step"] for line in run.metrics()] == _STEPS


@pytest.mark.parametrize("moment", first_of(["training", "baseline", "loading"]))
def test_ctrl_c_ends_a_run_whose_store_hangs(tmp_path: Path, moment: str) -> None:
    run = RunFolder(tmp_path / "runs" / "run")
    process = train(tmp_path / "runs")
    file = run.path / "rollouts.db"
    if moment == "training":
        wait_for(process, run.metrics)
    elif moment == "baseline":
        wait_for(process, file.exists)
        time.sleep(0.5)  # its first rollouts
    else:
        wait_for(process, (run.path / "run.json").exists)
    held = sqlite3.connect(file) if file.exists() else None
    if held is not None:
        held.execute("BEGIN EXCLUSIVE")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted" in err
    assert "Traceback" not in err
    if held is not None:
        held.close()
