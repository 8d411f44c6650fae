"""Fixtures of the tests that start workers."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def misdeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where tests write down what an agent is to do wrong."""
    folder = tmp_path / "misdeeds"
    folder.mkdir()
    monkeypatch.setenv("TEST_MISDEEDS", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.getcwd(), prepend=os.pathsep)
    return folder
