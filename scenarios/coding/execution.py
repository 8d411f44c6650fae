"""Run a project's tests, scripts and hidden checks in a sandbox."""

import ast
from collections.abc import Mapping

from agentgym.sandbox import (
    PythonScript,
    RunTests,
    Sandbox,
    SandboxResult,
    gives,
)

TESTS = "tests"
TIMEOUT_S = 5.0
_SHOWN = 120


def is_test_path(path: str) -> bool:
    """Return whether a path is the folder ``tests`` or a file in it."""
    return path == TESTS or path.startswith(TESTS + "/")


def tests_of(path: str) -> str:
    """Return the path of a module's tests: ``tests/test_m.py`` for ``shop/m.py``."""
    return f"{TESTS}/test_{path.rpartition('/')[2]}"


async def run_tests(sandbox: Sandbox, files: Mapping[str, str], path: str) -> str:
    """Run the tests at or below ``path``; return a report of one or two short lines."""
    paths = () if path == "." else (path,)
    result = await sandbox.run(files, RunTests(paths), timeout_s=TIMEOUT_S)
    return _report(result.checked(), files)


async def run_script(
    sandbox: Sandbox, files: Mapping[str, str], path: str, args: tuple[str, ...]
) -> str:
    """Run a script; return its output, cut to a few lines."""
    result = await sandbox.run(files, PythonScript(path, args), timeout_s=TIMEOUT_S)
    if result.checked().ok:
        return _cut(result.stdout) or "The script printed nothing."
    if result.status != "exited":
        return f"The script was stopped: {result.status}."
    lines = result.stderr.strip().splitlines() or ["no message"]
    return f"The script failed: {_cut(lines[-1])}"


def repaired(
    sandbox: Sandbox, files: Mapping[str, str], hidden: Mapping[str, dict[str, str]]
) -> bool:
    """Return whether the project's code gives all expected values."""
    right = {
        path: {asked: ast.literal_eval(shown) for asked, shown in values.items()}
        for path, values in hidden.items()
    }
    return bool(gives(sandbox, files, right, timeout_s=TIMEOUT_S))


def _report(result: SandboxResult, files: Mapping[str, str]) -> str:
    """Describe a test run, e.g. ``1 failed, 2 passed.`` and the first failure."""
    if not result.tests:
        return (
            "No tests were found." if result.ok or not result.timed_out else "Stopped."
        )
    bad = [test for test in result.tests if test.outcome != "passed"]
    if not bad:
        return f"{result.passed} passed."
    message = bad[0].message.splitlines()
    text = message[0].rpartition("Error: ")[2] if message else result.status
    name = bad[0].name
    module = next((f" ({p})" for p in files if tests_of(p) == name.split("::")[0]), "")
    return f"{len(bad)} failed, {result.passed} passed.\n{name}{module}: {_cut(text)}"


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
