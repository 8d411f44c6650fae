"""A machine over SSH, and the command line that trains on it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compute.sshd import MISSING, Machine, is_missing


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
