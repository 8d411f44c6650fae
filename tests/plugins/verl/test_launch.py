"""The driver's process: what it starts ends with it, and what goes wrong there."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from agentgym.errors import EngineError
from agentgym.plugins.verl.launch import VerlDriver
from tests.plugins.verl.conftest import make_environment

pytestmark = pytest.mark.slow
Start = Callable[[str], VerlDriver]


def update(driver: VerlDriver, rows: int = 1) -> object:
    row = {"ids": [5, 6], "start": 1, "trained": [(1, -0.5, 1.0)]}
    given = [row] * rows
    return driver.ask("update", rows=given, version=1, rate=1e-4, temperature=1.0)


def below(driver: VerlDriver) -> list[psutil.Process]:
    return psutil.Process(driver._process.pid).children(recursive=True)


def test_all_that_a_driver_started_ends_with_it(started: Start) -> None:
    driver = started("children")
    found = below(driver)
    assert len(found) >= 3  # the process that works and what it started
    driver.close()
    assert not psutil.wait_procs(found, timeout=30)[1]


@pytest.mark.parametrize(
    ("script", "why"),
    [("slow", "verl has ended"), ("dies", "ends: .*an illegal memory access")],
)
def test_a_driver_that_dies_is_an_error_and_nothing_is_left(
    started: Start, script: str, why: str
) -> None:
    driver = started(script)
    found = below(driver)
    if script == "slow":
        threading.Timer(0.5, driver._process.kill).start()
    with pytest.raises(EngineError, match=why):
        update(driver)
    assert not psutil.wait_procs(found, timeout=30)[1]


def test_a_failed_update_leaves_the_driver_usable(started: Start) -> None:
    driver = started("fails")
    for _ in range(2):
        with pytest.raises(EngineError, match="RuntimeError: out of memory"):
            update(driver)


def test_a_request_after_one_that_was_interrupted_has_its_own_answer(
    started: Start,
) -> None:
    driver = started("waits")
    for rows in (1, 20_000):  # interrupted while it is answered, and while it is sent
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            update(driver, rows)
        assert driver.ask("state")["model"] == "m"


def test_why_verl_does_not_start_is_told(started: Start) -> None:
    with pytest.raises(EngineError, match="ValueError: there is no such model"):
        started("no start")


def test_a_driver_has_a_folder_until_it_ends(own_home: Path, tmp_path: Path) -> None:
    make_environment(own_home, words=f'exec {sys.executable} "$@"')
    driver = VerlDriver(tmp_path / "verl.log")
    assert driver._folder.is_dir()
    with pytest.raises(EngineError, match="No module named '(hydra|ray|verl)"):
        driver.start({})
    driver._process.stdin.close()  # type: ignore[union-attr]
    driver._process.wait(30)
    assert not driver._folder.exists()
