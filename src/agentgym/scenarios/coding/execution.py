"""Running a workspace's tests and scripts, in the sandbox and nowhere else."""

import threading
from collections.abc import Mapping
from typing import Protocol

from agentgym.errors import SandboxError
from agentgym.sandbox import (
    Command,
    PythonScript,
    RunTests,
    Sandbox,
    SandboxConfig,
    SandboxResult,
    open_sandbox,
)

TESTS = "tests"
TIMEOUT_S = 5.0
_SHOWN = 120
_PROBE = "_probe.py"


def is_test_path(path: str) -> bool:
    """Return whether a resolved path is the tests folder or below it."""
    return path == TESTS or path.startswith(TESTS + "/")


def tests_of(path: str) -> str:
    """Return where the tests of a module are, by the project's convention."""
    return f"{TESTS}/test_{path.rpartition('/')[2]}"


class Runner(Protocol):
    """What executes code for an environment: a ``Sandbox``, in training."""

    async def run(
        self, files: Mapping[str, str], command: Command, *, timeout_s: float = ...
    ) -> SandboxResult:
        """Run a command in a fresh workspace."""

    def run_sync(
        self, files: Mapping[str, str], command: Command, *, timeout_s: float = ...
    ) -> SandboxResult:
        """Run a command in a fresh workspace and wait."""


class LazyRunner:
    """Opens a sandbox when something has to run for the first time.

    Args:
        runner: Used instead of an own sandbox; its owner closes it.
    """

    def __init__(self, runner: Runner | None = None) -> None:
        self._runner = runner
        self._own: Sandbox | None = None
        self._lock = threading.Lock()
        self.unsafe_local_exec = False

    def get(self) -> Runner:
        """Return what executes code.

        Raises:
            SandboxUnavailableError: No rung works on this machine.
        """
        if self._runner is not None:
            return self._runner
        with self._lock:
            if self._own is None:
                config = SandboxConfig(unsafe_local_exec=self.unsafe_local_exec)
                self._own = open_sandbox(config)
            return self._own

    def close(self) -> None:
        """Close the own sandbox, if one was opened."""
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()


async def run_tests(runner: Runner, files: Mapping[str, str], path: str) -> str:
    """Run the tests below ``path`` and return a report of one or two short lines.

    Raises:
        SandboxError: The sandbox failed.
    """
    paths = () if path == "." else (path,)
    result = await runner.run(files, RunTests(paths), timeout_s=TIMEOUT_S)
    return _report(_checked(result), files)


async def run_script(
    runner: Runner, files: Mapping[str, str], path: str, args: tuple[str, ...]
) -> str:
    """Run a script and return what it printed, cut to a few lines.

    Raises:
        SandboxError: The sandbox failed.
    """
    result = await runner.run(files, PythonScript(path, args), timeout_s=TIMEOUT_S)
    result = _checked(result)
    if result.ok:
        return _cut(result.stdout) or "The script printed nothing."
    if result.status != "exited":
        return f"The script was stopped: {result.status}."
    lines = result.stderr.strip().splitlines() or ["no message"]
    return f"The script failed: {_cut(lines[-1])}"


def gives(
    runner: Runner, files: Mapping[str, str], hidden: Mapping[str, Mapping[str, str]]
) -> bool:
    """Return whether expressions give what they should; wait for it.

    Only the values leave the sandbox, and what they should be never enters it: code
    that sets out to deceive whoever runs it can choose a value, not the verdict.

    Args:
        runner: Where to run the code.
        files: The workspace.
        hidden: For each module, expressions in its names, and what Python must show
            for each.

    Raises:
        SandboxError: The sandbox failed.
    """
    probe = {**files, _PROBE: _probe(hidden)}
    result = _checked(runner.run_sync(probe, PythonScript(_PROBE), timeout_s=TIMEOUT_S))
    right = [value for values in hidden.values() for value in values.values()]
    shown = result.stdout.splitlines()
    return result.ok and shown[-1:] == [f"[{', '.join(right)}]"]


def _probe(hidden: Mapping[str, Mapping[str, str]]) -> str:
    """Return a script whose last line of output is the list of all values."""
    lines = []
    for path, values in hidden.items():
        module = path.removesuffix(".py").replace("/", ".")
        names = dict.fromkeys(asked.partition("(")[0] for asked in values)
        lines.append(f"from {module} import {', '.join(names)}")
    asked = ", ".join(asked for values in hidden.values() for asked in values)
    return "\n".join([*lines, "", "print()", f"print([{asked}])", ""])


def _checked(result: SandboxResult) -> SandboxResult:
    if result.status == "sandbox_error":
        raise SandboxError(f"The sandbox failed: {result.error}")
    return result


def _report(result: SandboxResult, files: Mapping[str, str]) -> str:
    """Return e.g. ``1 failed, 2 passed``, the first failure, and the module tested."""
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
