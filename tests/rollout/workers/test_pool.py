"""The pool: what workers print, and workers that cannot be started."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.errors import RolloutError
from agentgym.rollout.session import WORKER_LOG
from agentgym.rollout.workers.forks import fork_server
from tests.rollout.sessions import requests, session


@pytest.mark.slow
def test_what_an_agent_prints_goes_to_the_log_and_harms_nothing(
    tmp_path: Path, misdeeds: Path
) -> None:
    agent = "tests.rollout.misbehaving:talkative_agent"
    with session(tmp_path, agent=agent) as opened:
        found = opened.run(requests(4), lambda _: None)
        pids = opened._pool.pids
    assert all(t.reward is not None for t in found)
    assert all(t.attempt == 0 for t in found)
    assert len(pids) == 1
    log = (tmp_path / WORKER_LOG).read_text(errors="replace")
    assert log.count("building the agent") == 1  # so that no worker died of it
    assert log.count('{"blocked": "r0-000"}') == len(found)


@pytest.fixture
def fresh_server() -> Iterator[None]:
    """Let processes be forked from one that is yet to be started."""
    fork_server.cache_clear()
    yield
    fork_server.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_server")
def test_a_worker_that_cannot_be_started_ends_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_such_python"))
    with (
        session(tmp_path, framework="native") as opened,
        pytest.raises(RolloutError, match="FileNotFoundError.*no_such_python"),
    ):
        opened.run(requests(1), lambda _: None)
