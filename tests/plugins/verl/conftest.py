"""verl's driver as a process, with a scripted cluster."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentgym.plugins.verl.launch import VerlDriver

SCRIPTED = shlex.join(
    [sys.executable, str(Path(__file__).with_name("scripted_driver.py"))]
)
"""Command of the scripted driver."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], VerlDriver]]:
    """Yield what starts a driver whose cluster follows a script."""
    with ExitStack() as stack:

        def start(script: str) -> VerlDriver:
            driver = VerlDriver(tmp_path / "verl.log", SCRIPTED)
            stack.callback(driver.close)
            driver.start({"actor_rollout_ref.model.path": "m", "script": script})
            return driver

        yield start
