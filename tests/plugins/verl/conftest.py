"""An environment of verl's, whose driver has a scripted cluster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentgym.plugins.verl.launch import VerlDriver

SCRIPTED = Path(__file__).with_name("scripted_driver.py")


def make_environment(home: Path, version: str = "0.9.1", words: str = "") -> Path:
    """Make an environment below AGENTGYM_HOME; return its Python, a shell script."""
    place = home / "engines" / "verl"
    packages = place / "lib" / "python3.12" / "site-packages"
    (packages / f"verl-{version}.dist-info").mkdir(parents=True)
    (place / "bin").mkdir()
    python = place / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{words}\n")
    python.chmod(0o755)
    return python


@pytest.fixture
def scripted(own_home: Path) -> None:
    """Make an environment in which verl's cluster follows a script."""
    make_environment(own_home, words=f"exec {sys.executable} {SCRIPTED}")


@pytest.fixture
def started(scripted: None, tmp_path: Path) -> Iterator[Callable[[str], VerlDriver]]:
    """Yield what starts a driver whose cluster follows a script."""
    with ExitStack() as stack:

        def start(script: str) -> VerlDriver:
            driver = VerlDriver(tmp_path / "verl.log")
            stack.callback(driver.close)
            driver.start({"actor_rollout_ref.model.path": "m", "script": script})
            return driver

        yield start
