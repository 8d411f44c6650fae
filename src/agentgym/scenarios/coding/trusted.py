"""Runs this scenario's own generated code in process, for demonstrations and tests.

It isolates nothing and understands only what the generator writes, so it must only
see that and the oracle's edits. Environments of agents run code in the sandbox.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

from agentgym.sandbox import (
    Command,
    PythonScript,
    RunTests,
    SandboxResult,
    TestOutcome,
)
from agentgym.sandbox.commands import find_tests

_IMPORT = re.compile(r"from (\w+)\.(\w+) import (.+)")
_TEST = re.compile(r"def (test_\w+)\(\):")
_ASSERT = re.compile(r"    assert (.+?)(?: (==|is) (.+))?")
_PRINT = re.compile(r'print\("(.+)", len\(values\), \*values\)')
_VALUES = re.compile(r"print\((\[.+\])\)")


class TrustedRunner:
    """A ``Runner`` for code that nobody but this package wrote."""

    async def run(
        self, files: Mapping[str, str], command: Command, *, timeout_s: float = 0
    ) -> SandboxResult:
        """Run a command at once."""
        return self.run_sync(files, command)

    def run_sync(
        self, files: Mapping[str, str], command: Command, *, timeout_s: float = 0
    ) -> SandboxResult:
        """Run a command at once.

        Raises:
            ValueError: The code or the command is none of the generator's.
        """
        match command:
            case RunTests():
                tests = [
                    outcome
                    for path in find_tests(command, files)
                    for outcome in _run_file(files, path)
                ]
                failed = any(test.outcome != "passed" for test in tests)
                return _result(exit_code=int(failed), tests=tuple(tests))
            case PythonScript(path, args):
                return _run_script(files, path, args)
        raise ValueError(f"{command!r} is nothing that this scenario runs.")


def _result(
    *, exit_code: int, stdout: str = "", tests: tuple[TestOutcome, ...] | None = None
) -> SandboxResult:
    return SandboxResult(
        status="exited",
        exit_code=exit_code,
        stdout=stdout,
        tests=tests,
        rung="none: trusted code",
        warm=True,
    )


def _run_script(
    files: Mapping[str, str], path: str, args: tuple[str, ...]
) -> SandboxResult:
    """Run a generated script, or one that prints a list of values."""
    source = files[path]
    if shown := _PRINT.search(source):
        line = " ".join((shown[1], str(len(args)), *args))
        return _result(exit_code=0, stdout=f"{line}\n")
    if not (values := _VALUES.search(source)):
        raise ValueError(f"{path} is no script of the generator.")
    scope: dict[str, Any] = {}
    for package, module, _ in _IMPORT.findall(source):
        scope |= _module(files[f"{package}/{module}.py"])
    try:
        return _result(exit_code=0, stdout=f"{eval(_compiled(values[1]), scope)}\n")
    except (ArithmeticError, LookupError, NameError, TypeError):
        return _result(exit_code=1)


def _run_file(files: Mapping[str, str], path: str) -> list[TestOutcome]:
    """Run the tests of one generated test file."""
    scope: dict[str, Any] = {}
    outcomes: list[TestOutcome] = []
    name = message = ""

    def finish() -> None:
        if name:
            outcome = _outcome(message)
            found = TestOutcome(name=name, outcome=outcome, message=message)
            outcomes.append(found)

    for number, line in enumerate(files[path].splitlines(), 1):
        if imported := _IMPORT.fullmatch(line):
            package, module, _ = imported.groups()
            scope = _module(files[f"{package}/{module}.py"])
        elif test := _TEST.fullmatch(line):
            finish()
            name, message = f"{path}::{test[1]}", ""
        elif line.startswith("    ") and not message:
            message = _check(line, scope, f"{path}:{number}")
    finish()
    return outcomes


def _outcome(message: str) -> Any:
    if not message:
        return "passed"
    return "failed" if "AssertionError" in message else "error"


def _check(line: str, scope: dict[str, Any], place: str) -> str:
    """Return what a failed assert says, empty if it holds."""
    found = _ASSERT.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r} is no line of a generated test.")
    left_source, relation, right_source = found.groups()
    try:
        left = eval(_compiled(left_source), scope)
        right = eval(_compiled(right_source), scope) if relation else True
    except (ArithmeticError, LookupError, NameError, TypeError) as error:
        return f"{place}: {type(error).__name__}: {error}"
    if left is right if relation == "is" else left == right:
        return ""
    sides = f" (left: {left!r}, right: {right!r})" if relation else ""
    return f"{place}: AssertionError: {line.strip()}{sides}"


@lru_cache(16_384)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<test>", "eval")


@lru_cache(1_024)
def _module(source: str) -> dict[str, Any]:
    """Return the names that a generated module defines."""
    scope: dict[str, Any] = {}
    exec(compile(source, "<module>", "exec"), scope)
    return scope
