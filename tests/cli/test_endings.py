"""How commands end before their time: exit code, what is said, what is left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Ended
from tests.variants import first_of

SETTINGS = {
    "TEST_TASKS": "2",
    "EVAL_TASKS": "2",
    "EVAL_SAMPLES": "1",
    "EVAL_EVERY": "2",
    "GROUP_SIZE": "2",
    "TASKS_PER_STEP": "2",
    "TRACKER": "none",
}
TRAIN = ("train", "coding", "--framework", "native", "--name", "x", "--episodes", "40")
EVAL = ("eval", "coding", "--framework", "native", "--model", "nano", "--tasks", "4")
RESUME = "Continue with: agentgym train --resume runs/x"


def end(folder: Path, how: str, *words: str) -> Ended:
    """Run a command in ``folder`` that ends so; nothing must be left in TMPDIR."""
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    root = Path(__file__).parents[2]
    given = {f"AGENTGYM_{name}": value for name, value in SETTINGS.items()}
    process = subprocess.run(
        [sys.executable, "-m", "tests.cli.endings", how, *words],
        cwd=folder,
        env={**os.environ, **given, "TMPDIR": str(scratch), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in process.stderr
    assert not list(scratch.iterdir())
    return Ended(process.returncode, process.stdout, process.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize(
    "words", [TRAIN, pytest.param(EVAL, marks=pytest.mark.sweep)], ids=["train", "eval"]
)
@pytest.mark.parametrize("when", first_of(["create-1", "call-1"]))
def test_a_signal_before_anything_is_finished_leaves_nothing(
    tmp_path: Path, how: str, code: int, words: tuple[str, ...], when: str
) -> None:
    ended = end(tmp_path, f"{when}:{how}", *words)
    assert ended.code == code
    assert ended.err.startswith("Interrupted")
    assert "--resume" not in ended.err
    assert not (tmp_path / "runs" / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"),
    first_of([("SIGINT", 130), ("SIGINT+SIGINT", 130), ("SIGTERM", 143)], 2),
)
def test_a_signal_in_the_middle_says_how_to_go_on(
    tmp_path: Path, how: str, code: int
) -> None:
    ended = end(tmp_path, f"update-3:{how}", *TRAIN)
    assert ended.code == code
    assert ended.err.startswith("Interrupted after step ")
    assert ended.err.rstrip().endswith(RESUME)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    first_of(["EngineError", "ValueError", "RolloutError", "TrainingFailedError"], 2),
)
def test_an_error_in_the_middle_says_how_to_go_on(tmp_path: Path, error: str) -> None:
    ended = end(tmp_path, f"update-3:{error}", *TRAIN)
    assert ended.code == 1
    assert "so it is told" in ended.err
    assert ended.err.rstrip().endswith(RESUME)
    assert ended.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("error", ["EngineError", "ModelError", "ValueError"])
def test_an_error_before_anything_is_finished_does_not(
    tmp_path: Path, error: str
) -> None:
    ended = end(tmp_path, f"create-1:{error}", *TRAIN)
    assert ended.code == (2 if error == "ModelError" else 1)
    assert "so it is told" in ended.err
    assert "--resume" not in ended.err


@pytest.mark.slow
def test_sigterm_ends_a_job_in_which_ctrl_c_is_ignored(tmp_path: Path) -> None:
    command = "import signal, runpy; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    command += "runpy.run_module('tests.cli.endings', run_name='__main__')"
    given = {f"AGENTGYM_{name}": value for name, value in SETTINGS.items()}
    process = subprocess.run(
        [sys.executable, "-c", command, "call-1:SIGTERM", *EVAL],
        cwd=tmp_path,
        env={**os.environ, **given, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 143, process.stderr


@pytest.mark.slow
def test_a_run_that_has_learned_nothing_is_not_told_to_go_on(tmp_path: Path) -> None:
    ended = end(tmp_path, "update-0:nothing", *TRAIN[:-1], "4")
    assert ended.code == 1
    assert "was trained" in ended.err
    assert "--resume" not in ended.err
