"""What every command has in common: help, errors, exit codes."""

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import agentgym as package
from agentgym.cli.output import for_terminal
from agentgym.errors import TrainingInterrupted
from agentgym.train import run_folder
from tests.cli.conftest import Command


def test_version(agentgym: Command) -> None:
    ended = agentgym("--version")
    assert (ended.code, ended.out) == (0, f"agentgym {package.__version__}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["trian"],
        ["train", "coding", "--epsodes", "3"],
        ["runs", "show"],
        ["agents", "x"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(agentgym: Command, words: list[str]) -> None:
    ended = agentgym(*words)
    assert ended.code == 2
    assert "Usage:" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["scenarios", "list"],
        ["scenarios", "list", "--json"],
        ["runs", "list"],
        ["agents", "list", "--json"],
    ],
    ids=" ".join,
)
def test_what_shells_ask_for_loads_nothing_heavy(
    words: list[str], tmp_path: Path
) -> None:
    """Also where there is a run, and one on a rented machine."""
    runs = tmp_path / "runs"
    for name in ("here", "rented"):
        (runs / name).mkdir(parents=True)
        record = {"status": "done", "config": {"scenario": "coding", "gpu": "runpod"}}
        (runs / name / "run.json").write_text(json.dumps(record))
    (runs / "rented" / "machine.json").write_text('{"name": "agentgym-x"}')
    script = (
        "import sys; from agentgym.cli.main import main\n"
        f"assert main({words!r}) == 0\n"
        "heavy = {'typer', 'rich', 'pydantic', 'torch', 'yaml', 'importlib.metadata'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.parametrize(
    "words",
    [
        ["scenarios", "list"],
        ["--help"],
        ["scenarios", "show", "coding"],
        ["scenarios", "show", "coding", "--json"],
    ],
    ids=" ".join,
)
def test_reader_that_leaves_is_no_error(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "agentgym", *words], stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")


def failing(error: BaseException) -> Callable[..., None]:
    """Return a function that raises ``error``, whatever it is given."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_error_is_one_paragraph_and_has_a_traceback_if_asked(agentgym: Command) -> None:
    ended = agentgym("runs", "show", "nowhere")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Error: No run is named 'nowhere'.")
    assert ended.err.count("\n") == 1
    debugged = agentgym("runs", "show", "nowhere", "--debug")
    assert debugged.code == 2
    assert "Traceback (most recent call last)" in debugged.err
    assert ended.err in debugged.err


@pytest.mark.parametrize(
    ("error", "code", "begins", "part"),
    [
        (LookupError("odd"), 1, "Error: LookupError: odd.", "--debug"),
        (OSError(errno.ENOSPC, "No space"), 1, "Error: ", "the disk is full"),
        (TrainingInterrupted("runs/x", 12), 130, "Interr", "train --resume runs/x"),
        (KeyboardInterrupt(), 130, "Interrupted.", ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_ends_a_command_is_said_without_a_traceback(
    agentgym: Command,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    begins: str,
    part: str,
) -> None:
    monkeypatch.setattr(run_folder.RunFolder, "open", failing(error))
    ended = agentgym("runs", "show", "x")
    assert ended.code == code
    assert ended.err.startswith(begins)
    assert part in ended.err
    assert "Traceback" not in ended.err


def test_control_characters_of_others_do_not_reach_the_terminal(
    agentgym: Command, tmp_path: Path
) -> None:
    evil = "\x1b]0;mine\x07\x1b[2J\r\x9b31m"
    run = tmp_path / "runs" / "x"
    run.mkdir(parents=True)
    config = {"scenario": evil, "framework": evil, "model": evil}
    record = {"status": evil, "error": evil, "config": config}
    (run / "run.json").write_text(json.dumps(record))
    entry = {"at": "2026", "what": "executed", "command": f"rm {evil}"}
    (run / "audit.jsonl").write_text(json.dumps(entry))
    for words in ("runs list", "runs show x", "runs audit x", "doctor x"):
        ended = agentgym(*words.split(" "))
        shown = ended.out + ended.err
        assert "\N{REPLACEMENT CHARACTER}" in shown, words
        assert not set("\x1b\x07\r\x9b") & set(shown), words


def test_a_message_breaks_between_words_and_not_in_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Write some with `agentgym tasks starter`, please:\n    agentgym " + "x" * 40
    assert for_terminal(text) == text
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    *lines, last = for_terminal(text).splitlines()
    assert lines == ["Write some with", "`agentgym tasks starter`,", "please:"]
    assert last == text.splitlines()[-1]


@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m agentgym runs list {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
