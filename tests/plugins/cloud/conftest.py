"""Fake providers in the place of the real ones, and a machine over SSH."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.cloud.fakes.fixtures import lambda_cloud, no_provider, runpod, sky
from tests.plugins.cloud.sshd import MISSING, Machine, is_missing

__all__ = ["lambda_cloud", "machine", "no_provider", "runpod", "sky"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Yield a machine that can be logged in to, which ``ssh`` knows."""
    if is_missing():
        pytest.skip(MISSING)
    made = Machine(tmp_path / "machine")
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}{os.environ['PATH']}")
    made.know_host()
    made.start()
    try:
        yield made
    finally:
        made.close()
