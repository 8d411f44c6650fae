"""The sandbox of a scenario: opened once, when it is first needed."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentgym.sandbox import Sandbox, SandboxConfig, open_sandbox
from agentgym.scenarios.coding import execution
from agentgym.scenarios.coding.execution import LazyRunner


def test_threads_that_race_share_one_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Sandbox] = []

    def slowly(config: SandboxConfig) -> Sandbox:
        time.sleep(0.05)
        opened.append(open_sandbox(config))
        return opened[-1]

    monkeypatch.setattr(execution, "open_sandbox", slowly)
    lazy = LazyRunner()
    start = threading.Barrier(6)

    def get(_: int) -> object:
        start.wait()
        return lazy.get()

    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(get, range(6)))
    lazy.close()
    for sandbox in opened:
        sandbox.close()
    assert len(opened) == 1
    assert set(map(id, got)) == {id(opened[0])}
