"""SandboxResult: the result of an execution, parsed from the sandbox's output.

The execution may have forged this output, so the parser trusts nothing in it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Literal

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
        name: ``file.py::test_name``, or the file if it could not be imported.
        outcome: ``passed``; ``failed`` after a failed assertion; ``error`` after
            another exception, or if the test did not end.
        message: ``file:line: Type: text`` of the failure; empty if it passed.
        seconds: Duration in wall seconds.
    """

    __test__ = False

    name: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SandboxResult:
    """The result of one execution.

    The test report comes from the process that also runs the code under test. Code that
    deliberately deceives its runner can forge it. Code that merely exits or crashes
    cannot pass, because a missing report counts as an error.

    Attributes:
        status: ``exited`` by itself; ``killed`` by a signal, e.g. at a resource limit;
            ``timed_out``; or ``sandbox_error`` if the sandbox failed.
        exit_code: Exit code; None unless it exited.
        signal: Number of the signal that killed it; else None.
        stdout: Standard output, cut at the limit.
        stderr: Standard error, cut at the limit.
        truncated: Whether stdout or stderr was cut.
        tests: Outcome of each test; None unless tests were run.
        files: Full text of each changed text file of the workspace, by path; None as
            text means that the file was removed. Files that do not fit into
            ``collect_bytes`` are left out. None unless changed files were requested.
        wall_s: Wall time inside the sandbox, seconds.
        cpu_s: CPU time of all its processes, seconds.
        peak_mb: Peak memory of its largest process, in MiB, the interpreter included.
        rung: Name of the rung (kind of isolation).
        warm: Whether the sandbox forks executions from a long-lived interpreter.
        cached: Whether this result comes from the cache.
        error: The reason of a ``sandbox_error``; or the exceeded limit, if the sandbox
            ended the execution for it; else empty.
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
        """Whether the exit code is 0 and all tests passed; false if no test was found.

        Without tests to run, only the exit code counts.
        """
        if self.tests is not None and self.passed < max(1, len(self.tests)):
            return False
        return self.status == "exited" and self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended the execution."""
        return self.status == "timed_out"

    @property
    def passed(self) -> int:
        """Number of passed tests."""
        return sum(test.outcome == "passed" for test in self.tests or ())


def complete(result: SandboxResult, job: Job, report: bytes) -> SandboxResult:
    """Parse the lines of JSON that an execution wrote, and add them to its result."""
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
    """Return the outcome of each test; ``error`` for a test that did not end."""
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
    """Return ``SandboxResult.files``; None if the report is missing or malformed."""
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
