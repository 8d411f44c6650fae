"""The command line in this process, with its output."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentgym.cli.main import main
from tests.plugins.cloud.fakes.fixtures import lambda_cloud, no_provider, runpod, sky

__all__ = ["agentgym", "lambda_cloud", "no_provider", "runpod", "sky"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def agentgym(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs one command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> Ended:
        capfd.readouterr()
        code = main(words)
        return Ended(code, *capfd.readouterr())

    return run
