"""The fork server: what its processes know, and what others can see of them."""

import calendar
import os
import sys
from pathlib import Path

import pytest

from agentgym.core.settings import initial_environment
from agentgym.rollout.workers.forks import fork_server

PLANTED = "planted-2c9e-secret"


def tell_planted(argument: str) -> int:
    """Write, in a child, the variable, and which processes show it to others."""
    shown = [
        pid
        for pid in (os.getpid(), os.getppid())
        if PLANTED.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    ]
    sys.stdout.write(f"{os.environ['PLANTED_KEY']} {shown}")
    return 0


def test_what_was_set_later_is_known_and_in_no_initial_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_server.cache_clear()
    monkeypatch.setenv("PLANTED_KEY", PLANTED)
    assert "PLANTED_KEY" not in initial_environment()
    assert initial_environment()["PATH"]
    errors = os.open(os.devnull, os.O_WRONLY)
    child = fork_server((), "0").fork(f"{__name__}:tell_planted", "", errors=errors)
    try:
        assert child.read(60) == f"{PLANTED} []".encode()
    finally:
        os.close(errors)
        child.close()
        fork_server.cache_clear()


def tell_calendar(argument: str) -> int:
    """Write, in a child, where a preloaded module is from."""
    sys.stdout.write(str(sys.modules["calendar"].__file__))
    return 0


def test_nothing_of_the_current_folder_is_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a project that has a folder ``mcp``, which frameworks import."""
    (tmp_path / "calendar.py").write_text("")
    monkeypatch.chdir(tmp_path)
    fork_server.cache_clear()
    errors = os.open(os.devnull, os.O_WRONLY)
    server = fork_server(("calendar",), "0")
    child = server.fork(f"{__name__}:tell_calendar", "", errors=errors)
    try:
        assert child.read(60) == str(calendar.__file__).encode()
    finally:
        os.close(errors)
        child.close()
        fork_server.cache_clear()
