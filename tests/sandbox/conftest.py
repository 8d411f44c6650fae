"""Sandboxes of every rung that works here, warm and cold."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.sandbox import (
    Limits,
    PythonScript,
    Sandbox,
    SandboxConfig,
    SandboxResult,
    open_sandbox,
)
from agentgym.sandbox.ladder import probe
from agentgym.sandbox.guest.settings import RUNGS
from tests.sandbox.attacks import ISOLATING, Attack


def _open(rung: str, *, warm: bool) -> Sandbox:
    reason = probe(RUNGS[rung])
    if reason:
        pytest.skip(f"the rung {rung} does not work here: {reason}")
    config = SandboxConfig(
        rung=rung,
        warm=warm,
        cache_entries=0,
        concurrency=2,
        limits=Limits(memory_mb=256, total_memory_mb=400),
    )
    return open_sandbox(config)


@pytest.fixture(
    scope="session",
    params=[(rung, mode) for rung in ISOLATING for mode in ("warm", "cold")],
    ids=lambda param: "-".join(param),
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    rung, mode = request.param
    with _open(rung, warm=mode == "warm") as opened:
        yield opened


@pytest.fixture(scope="session", params=ISOLATING)
def warm_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with _open(request.param, warm=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def best_sandbox() -> Iterator[Sandbox]:
    """The safest rung that works here; what the ordinary tests use."""
    for rung in ISOLATING:
        if not probe(RUNGS[rung]):
            with _open(rung, warm=True) as opened:
                yield opened
                return
    pytest.skip("no isolating rung works here")


@pytest.fixture(scope="session")
def unsafe_sandbox() -> Iterator[Sandbox]:
    """No isolation: proves that the attacks do work where nothing stops them."""
    config = SandboxConfig(rung="unsafe", unsafe_local_exec=True, cache_entries=0)
    with open_sandbox(config) as opened:
        yield opened


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder of the host that any user could read and write, were it visible."""
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o777)
    return tmp_path


@pytest.fixture
def attack() -> Attack:
    """Run a script; its last expression of interest is what it prints."""

    def run(
        sandbox: Sandbox, script: str, *args: str, timeout_s: float = 5.0
    ) -> SandboxResult:
        return sandbox.run_sync(
            {"attack.py": script},
            PythonScript("attack.py", args),
            timeout_s=timeout_s,
        )

    return run
