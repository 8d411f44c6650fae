"""``agentgym view``: what it says where there is nothing to show."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command


def test_a_folder_that_is_not_a_run_is_refused(
    agentgym: Command, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    ended = agentgym("view", str(tmp_path / "notes"), "--no-open")
    assert ended.code == 2
    assert "notes" in ended.err


@pytest.mark.parametrize("words", [("view", "--no-open"), ("runs", "list")])
def test_a_file_is_not_a_folder_of_runs(
    agentgym: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "notes").write_text("")
    ended = agentgym(*words, "--output", str(tmp_path / "notes"))
    assert ended.code == 2
    assert "Invalid value for '--output': Directory" in ended.err


@pytest.mark.slow  # a process of its own, which only a signal ends
def test_a_folder_without_runs_says_how_to_start_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agentgym", "view", "--no-open"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as viewer:
        assert viewer.stdout is not None
        said = []
        while not said or "Ctrl-C ends it" not in said[-1]:
            said.append(viewer.stdout.readline())
            assert said[-1], viewer.stderr and viewer.stderr.read()
        viewer.send_signal(signal.SIGINT)
        viewer.wait(30)
    text = " ".join(" ".join(said).split())
    assert "Open http://127.0.0.1:" in text
    assert "runs has no runs yet. Start one in another terminal" in text
    assert "agentgym train coding --framework langchain" in text
    assert not list(tmp_path.iterdir())
