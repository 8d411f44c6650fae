"""A sandbox that is opened when something first runs in it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from agentgym.sandbox import LazySandbox, PythonScript, SandboxConfig

FILES = {"a.py": "print(1)"}


def test_threads_that_race_share_one_sandbox(best_rung: str) -> None:
    made: list[SandboxConfig] = []
    start = threading.Barrier(6)

    def config() -> SandboxConfig:
        made.append(SandboxConfig(rung=best_rung))
        return made[-1]

    def run(_: int) -> object:
        start.wait()
        assert sandbox.run_sync(FILES, PythonScript("a.py")).stdout == "1\n"
        return sandbox.get()

    sandbox = LazySandbox(config)
    assert not made
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(run, range(6)))
    assert len(set(map(id, got))) == len(made) == 1
    sandbox.close()


def test_after_closing_it_opens_again(best_rung: str) -> None:
    sandbox = LazySandbox(lambda: SandboxConfig(rung=best_rung))
    sandbox.close()
    first = sandbox.get()
    sandbox.close()
    result = asyncio.run(sandbox.run(FILES, PythonScript("a.py")))
    assert result.stdout == "1\n"
    assert sandbox.get() is not first
    sandbox.close()
