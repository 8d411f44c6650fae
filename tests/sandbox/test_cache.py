"""What is remembered: under a key of all that matters, in a bounded memory."""

import gc
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.sandbox import Limits, PythonScript, RunTests, Sandbox, SandboxConfig
from agentgym.sandbox import sandbox as sandbox_module
from agentgym.sandbox.commands import Job
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.sandbox import ResultCache
from tests.sandbox.conftest import ISOLATING, opened

JOB = Job({"a.py": "import planted; print(planted.X)"}, PythonScript("a.py"), 1)
FORGER = """\
import os
for number in range(20_000):
    line = b'{"test": "%d %s", "outcome": "passed", "message": "%s", "seconds": 0}'
    os.write(3, line % (number, b"x" * 60, b"\\xf0\\x9f\\x92\\xa9" * 20) + b"\\n")
os.write(3, b'{"running": null}\\n')
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sandbox_module, "_FRESH_NS", 0)
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("X = 1\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("rung", ISOLATING)
def test_a_package_that_changed_gives_its_new_result(rung: str, library: Path) -> None:
    with opened(rung):
        pass
    config = SandboxConfig(rung=rung, concurrency=1, python_path=(library,))
    module = library / "planted" / "__init__.py"
    with Sandbox(config) as sandbox:
        told = []
        for text in ("X = 1\n", "X = 2\n", "X = 1\n"):
            previous = os.stat(module)
            module.write_text(text)
            os.utime(module, ns=(previous.st_atime_ns, previous.st_mtime_ns))
            for _ in range(2):
                result = sandbox.run_sync(JOB.files, JOB.command)
                told.append((result.stdout.strip(), result.cached))
    assert told == [(text, known) for text in "121" for known in (False, True)]


def test_what_is_younger_than_a_clock_can_tell_is_not_remembered(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SandboxConfig(python_path=(library,))
    remembered = ResultCache(config, RUNGS["unsafe"])
    assert remembered.key(JOB) is not None
    monkeypatch.setattr(sandbox_module, "_FRESH_NS", 1_000_000_000 * 60)
    assert remembered.key(JOB) is None
    monkeypatch.setattr(sandbox_module, "_FRESH_NS", 0)
    monkeypatch.setattr(sandbox_module, "_MOST_CHECKED", 2)
    assert remembered.key(JOB) is None


def test_all_that_matters_is_in_the_key(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, rung = SandboxConfig(), RUNGS["bubblewrap"]
    keys = {
        ResultCache(*setting).key(JOB)
        for setting in (
            (config, rung),
            (config, RUNGS["landlock"]),
            (replace(config, limits=Limits(memory_mb=1)), rung),
            (replace(config, warm=False), rung),
            (replace(config, python_path=(library,)), rung),
        )
    }
    for name, value in (("__version__", "9"), ("own_python", lambda: Path("/x"))):
        monkeypatch.setattr(sandbox_module, name, value)
        keys.add(ResultCache(config, rung).key(JOB))
    keys.add(ResultCache(config, rung).key(replace(JOB, timeout_s=2)))
    keys.add(ResultCache(config, rung).key(replace(JOB, collect=True)))
    assert len(keys - {None}) == 9


@pytest.mark.slow
def test_forged_reports_do_not_fill_memory(best_rung: str) -> None:
    command = RunTests()
    tracemalloc.start()
    try:
        with Sandbox(SandboxConfig(rung=best_rung, concurrency=1)) as sandbox:
            for number in range(12):
                files = {"test_a.py": f"{FORGER}\ndef test_{number}(): pass\n"}
                assert sandbox.run_sync(files, command).tests
            gc.collect()
            held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 24 << 20
    assert most < 96 << 20


def test_what_is_remembered_has_a_size(best_rung: str) -> None:
    config = SandboxConfig(rung=best_rung, concurrency=1, cache_bytes=200_000)
    texts = [
        f"print('{text}' * {20_000 if text != 'd' else 60_000})" for text in "abcd"
    ]
    with Sandbox(config) as sandbox:

        def known() -> list[bool]:
            return [
                sandbox.run_sync({"a.py": text}, PythonScript("a.py")).cached
                for text in texts
            ]

        assert known() == [False] * 4
        assert known() == [True, True, True, False], "d takes too much of it alone"
        more = [f"print({number}, 'x' * 20_000)" for number in range(8)]
        for text in more:
            for each in (text, texts[0]):
                sandbox.run_sync({"a.py": each}, PythonScript("a.py"))
        assert known() == [True, False, False, False], "a was used all the time"
