"""Sandboxes with every language whose toolchain is installed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agentgym.sandbox import Limits, Program, Sandbox, SandboxConfig, SandboxResult
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.ladder import probe
from agentgym.sandbox.languages import LANGUAGES, missing
from tests.sandbox.conftest import (
    ISOLATING,
    best_rung,
    best_sandbox,
    open_folder,
    unsafe_sandbox,
)

__all__ = ["best_rung", "best_sandbox", "open_folder", "unsafe_sandbox"]

Run = Callable[..., SandboxResult]


def fit_for(rung: str) -> tuple[str, ...]:
    """Return the installed languages that a rung can run."""
    return tuple(
        name
        for name, language in LANGUAGES.items()
        if not missing(name) and (RUNGS[rung].forks or not language.forks)
    )


@contextmanager
def opened(rung: str) -> Iterator[Sandbox]:
    """Open a sandbox with the languages of a rung, or skip the test."""
    if reason := probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here: {reason}")
    config = SandboxConfig(
        rung=rung,
        cache_bytes=0,
        concurrency=2,
        limits=Limits(file_mb=16, disk_mb=80),
        languages=fit_for(rung),
    )
    with Sandbox(config) as sandbox:
        yield sandbox


@pytest.fixture(
    scope="session",
    params=[
        "best",
        *(pytest.param(rung, marks=pytest.mark.sweep) for rung in ISOLATING),
    ],
)
def languages_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """The best sandbox with all languages; in the sweep, one of each rung."""
    name = request.param
    if name == "best":
        name = request.getfixturevalue("best_rung")
    with opened(name) as sandbox:
        yield sandbox


@pytest.fixture(params=list(LANGUAGES))
def language(request: pytest.FixtureRequest, languages_sandbox: Sandbox) -> str:
    """Each language, skipped where it cannot run."""
    name = str(request.param)
    if reason := missing(name):
        pytest.skip(reason)
    if name not in languages_sandbox.config.languages:
        pytest.skip(f"{languages_sandbox.rung.name} cannot start a compiler")
    return name


@pytest.fixture
def run(languages_sandbox: Sandbox) -> Run:
    """Run a named program with arguments."""

    def run(
        program: tuple[str, str], *args: str, timeout_s: float = 20.0
    ) -> SandboxResult:
        path, source = program
        return languages_sandbox.run_sync(
            {path: source}, Program(path, args), timeout_s=timeout_s
        )

    return run
