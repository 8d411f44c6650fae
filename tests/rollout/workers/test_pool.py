"""The pool: what workers print, and workers that cannot be started."""

import os
import signal
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
def test_a_worker_that_printed_before_it_ran_is_still_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "python"
    greeting = "printf 'welcome\\n[1]\\n7\\n\\377\\n'"
    wrapper.write_text(f'#!/bin/sh\n{greeting}\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(wrapper))
    with session(tmp_path, framework="native") as opened:
        [before] = opened.run(requests(1), lambda _: None)
        os.kill(opened._pool.pids[0], signal.SIGKILL)
        [after] = opened.run(requests(1, seed=1), lambda _: None)
    assert before.reward is not None
    assert after.reward is not None  # so the worker was watched, and replaced


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


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_server")
def test_a_worker_that_ends_before_it_reads_its_settings_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        session(tmp_path, framework="native") as opened,
        pytest.raises(RolloutError, match="The workers cannot start"),
    ):
        opened.run(requests(1), lambda _: None)
