"""A sandbox that is opened when something first runs in it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from agentgym.sandbox import PythonScript, Sandbox, SandboxConfig

FILES = {"a.py": "print(1)"}


def test_threads_that_race_share_one_sandbox(best_rung: str) -> None:
    made: list[SandboxConfig] = []
    start = threading.Barrier(6)

    def config() -> SandboxConfig:
        made.append(SandboxConfig(rung=best_rung))
        return made[-1]

    def run(_: int) -> str:
        start.wait()
        return sandbox.run_sync(FILES, PythonScript("a.py")).stdout

    sandbox = Sandbox(config)
    assert not made
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, range(6))) == ["1\n"] * 6
    assert len(made) == 1
    sandbox.close()


def test_after_closing_it_opens_again(best_rung: str) -> None:
    sandbox = Sandbox(SandboxConfig(rung=best_rung))
    sandbox.close()
    for _ in range(2):
        result = asyncio.run(sandbox.run(FILES, PythonScript("a.py")))
        assert (result.stdout, result.cached) == ("1\n", False)
        assert asyncio.run(sandbox.run(FILES, PythonScript("a.py"))).cached
        sandbox.close()
