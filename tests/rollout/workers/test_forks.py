"""The fork server: what its processes know, and what others can see of them."""

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
