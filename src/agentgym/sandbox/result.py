"""SandboxResult: the result of an execution, parsed from the sandbox's output.

The execution may have forged this output, so the parser checks all of it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Literal, Self

from agentgym.core.files import whole_text
from agentgym.errors import SandboxError
from agentgym.sandbox.commands import Job, RunTests, check_files

_MOST_LINES = 20_000
_LONGEST_LINE = 64 * 1024
"""Maximum length of a line in a test report, in bytes; longer lines are ignored."""
_LONGEST_TEST_S = 1e6

Outcome = Literal["passed", "failed", "error"]
Status = Literal["exited", "killed", "timed_out", "sandbox_error"]


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """Result of one test.

    Attributes:
        name: The id ``file.py::test_name``, or the file if it could not be imported.
        outcome: ``passed``; ``failed`` after a failed assertion; ``error`` after
            another exception, or if the test did not end.
        message: The failure as ``file:line: Type: text``; empty if the test passed.
        seconds: Duration in seconds of wall time.
    """

    __test__ = False

    name: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SandboxResult:
    """The result of one execution.

    The test results come from the process that also runs the tested code. Code that
    deceives the test runner on purpose can forge them (``gives`` prevents this). Code
    that only exits or crashes cannot pass, because a missing result is an error.

    Attributes:
        status: ``exited`` by itself; ``killed`` by a signal, e.g. at a resource limit;
            ``timed_out``; or ``sandbox_error`` if the sandbox failed.
        exit_code: Exit code of the command; None if the status is not ``exited``.
        signal: Number of the signal that killed the command; else None.
        stdout: Standard output, cut at the limit ``output_bytes``.
        stderr: Standard error, cut at the same limit.
        truncated: Whether stdout or stderr was cut.
        tests: Outcome of each test; None if the command did not run tests.
        files: Full text of each changed text file of the workspace, by path. The value
            is None for a removed file. Files that do not fit into ``collect_bytes`` are
            left out. ``files`` is None if changed files were not requested.
        wall_s: Wall time of the execution, in seconds.
        cpu_s: CPU time of all processes, in seconds.
        peak_mb: Peak memory of the largest process, with the interpreter, in MiB.
        rung: Name of the kind of isolation.
        warm: Whether the sandbox forks executions from a long-lived interpreter.
        cached: Whether this result comes from the cache.
        error: The reason of a ``sandbox_error``, or the resource limit that was
            exceeded; else empty.
    """

    status: Status
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    tests: tuple[TestOutcome, ...] | None = None
    files: Mapping[str, str | None] | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    rung: str
    warm: bool
    cached: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0 and, if the command ran tests, all tests passed.

        False if the command should have run tests, and there were none.
        """
        if self.tests is not None and self.passed < max(1, len(self.tests)):
            return False
        return self.status == "exited" and self.exit_code == 0

    def checked(self) -> Self:
        """Return the result; raise SandboxError if the sandbox itself failed."""
        if self.status == "sandbox_error":
            raise SandboxError(f"The sandbox failed: {self.error}")
        return self

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended the execution."""
        return self.status == "timed_out"

    @property
    def passed(self) -> int:
        """Number of passed tests."""
        return sum(test.outcome == "passed" for test in self.tests or ())


def complete(result: SandboxResult, job: Job, report: bytes) -> SandboxResult:
    """Parse an execution's report, and add its content to the result."""
    first, _, rest = report.partition(b"\n")
    begun = _read(first)
    if "ready" not in begun and not result.error and not result.timed_out:
        why = begun.get("setup_error", "it ended during confinement")
        error = f"Setup failed: {why}"
        result = replace(result, status="sandbox_error", exit_code=None, error=error)
    if isinstance(job.command, RunTests) and result.status != "sandbox_error":
        result = replace(result, tests=_tests(rest, result.status))
    return replace(result, files=_changes(rest, job)) if job.collect else result


def _read(line: bytes) -> dict[str, Any]:
    """Parse a line of an execution's report; return {} if it is malformed."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _tests(report: bytes, status: Status) -> tuple[TestOutcome, ...]:
    """Return the outcome of each test in a report; ``error`` if it did not end."""
    found: dict[str, TestOutcome] = {}
    running: str | None = ""
    for number, line in enumerate(BytesIO(report)):
        if number == _MOST_LINES:
            running = "a report of too many lines"
            break
        match _read(line) if len(line) <= _LONGEST_LINE else {}:
            case {"running": str() | None as running}:
                continue
            case {
                "test": str(name),
                "outcome": "passed" | "failed" | "error" as outcome,
                "message": str(message),
                "seconds": float() | int() as seconds,
            } if 0 <= seconds < _LONGEST_TEST_S:
                running = ""
                name, message = whole_text(name), whole_text(message)
                found[name] = TestOutcome(
                    name=name, outcome=outcome, message=message, seconds=float(seconds)
                )
    if running is not None:
        name = whole_text(running) or "the test run"
        message = f"{name} did not finish: the process {status.replace('_', ' ')}"
        found[name] = TestOutcome(name=name, outcome="error", message=message)
    return tuple(found.values())


def _changes(report: bytes, job: Job) -> dict[str, str | None] | None:
    """Return the changed files in a report; None if they are missing or malformed."""
    match _read(report.rstrip(b"\n").rpartition(b"\n")[2]):
        case {"left": {"files": dict(changed), "gone": list(gone)}}:
            texts = [*changed, *changed.values()]
        case _:
            return None
    if not all(isinstance(text, str) for text in (*texts, *gone)):
        return None
    try:
        check_files(changed)
        "".join(texts).encode()
    except (SandboxError, UnicodeEncodeError):
        return None
    missing = frozenset(gone)
    return {**changed, **{name: None for name in job.files if name in missing}}
