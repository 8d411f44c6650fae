"""Sandboxes: the best that works here; with ``-m sweep``, each rung warm and cold."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentgym.sandbox import Limits, PythonScript, Sandbox, SandboxConfig, SandboxResult
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.ladder import probe

ISOLATING = [rung.name for rung in RUNGS.values() if rung.isolates]
Attack = Callable[..., SandboxResult]


@contextmanager
def opened(rung: str, *, warm: bool = True, concurrency: int = 2) -> Iterator[Sandbox]:
    """Open a small sandbox on a rung, or skip the test."""
    if reason := probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here: {reason}")
    config = SandboxConfig(
        rung=rung,
        warm=warm,
        cache_bytes=0,
        concurrency=concurrency,
        limits=Limits(memory_mb=160, total_memory_mb=240, file_mb=16, disk_mb=80),
    )
    with Sandbox(config) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def best_rung() -> str:
    for name in ISOLATING:
        if not probe(RUNGS[name]):
            return name
    pytest.skip("no isolating rung works here")


@pytest.fixture(scope="session")
def best_sandbox(best_rung: str) -> Iterator[Sandbox]:
    with opened(best_rung) as sandbox:
        yield sandbox


@pytest.fixture(
    scope="session",
    params=[
        "best",
        *(
            pytest.param(f"{rung} {mode}", marks=pytest.mark.sweep)
            for rung in ISOLATING
            for mode in ("warm", "cold")
        ),
    ],
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """The best sandbox; in the sweep, each that there is."""
    if request.param == "best":
        yield request.getfixturevalue("best_sandbox")
        return
    rung, mode = request.param.split()
    with opened(rung, warm=mode == "warm") as sandbox:
        yield sandbox


@pytest.fixture(
    params=[
        "best",
        *(pytest.param(rung, marks=pytest.mark.sweep) for rung in ISOLATING),
    ]
)
def rung(request: pytest.FixtureRequest, best_rung: str) -> str:
    """The name of the best rung; in the sweep, each that works here."""
    name = best_rung if request.param == "best" else request.param
    if reason := probe(RUNGS[name]):
        pytest.skip(f"the rung {name} does not work here: {reason}")
    return str(name)


@pytest.fixture(scope="session")
def unsafe_sandbox() -> Iterator[Sandbox]:
    """No isolation: proves that the attacks do work where nothing stops them."""
    config = SandboxConfig(rung="unsafe", unsafe_local_exec=True, cache_bytes=0)
    with Sandbox(config) as opened:
        yield opened


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of the host that any user could read and write, were it visible.

    Not pytest's own: a second pytest closes what that is in to other users.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.fixture
def attack() -> Attack:
    """Run a script; its last expression of interest is what it prints."""

    def run(
        sandbox: Sandbox, script: str, *args: str, timeout_s: float = 5.0
    ) -> SandboxResult:
        return sandbox.run_sync(
            {"attack.py": script}, PythonScript("attack.py", args), timeout_s=timeout_s
        )

    return run
