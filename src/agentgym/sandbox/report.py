"""From what a sandbox sent back to a result. All of it may be forged: trust nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox.commands import Job, RunTests, check_files
from agentgym.sandbox.result import SandboxResult, Status, TestOutcome


def complete(result: SandboxResult, job: Job, report: bytes) -> SandboxResult:
    """Return what zygote and pipes said, with what the execution itself reported."""
    lines = list(_lines(report))
    ready = bool(lines) and "ready" in lines[0]
    if not ready and not result.error and not result.timed_out:
        why = lines[0].get("setup_error") if lines else "it ended during confinement"
        error = f"Setup failed: {why}"
        result = replace(result, status="sandbox_error", exit_code=None, error=error)
    if isinstance(job.command, RunTests) and result.status != "sandbox_error":
        result = replace(result, tests=_tests(lines, result.status))
    return replace(result, files=_changes(lines, job)) if job.collect else result


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _tests(lines: list[dict[str, Any]], status: Status) -> tuple[TestOutcome, ...]:
    """Return the outcome of each test, and an error for one that did not end."""
    found: dict[str, TestOutcome] = {}
    running: str | None = ""
    for line in lines:
        match line:
            case {"running": str() | None as running}:
                continue
            case {
                "test": str(name),
                "outcome": "passed" | "failed" | "error" as outcome,
                "message": str(message),
                "seconds": float() | int() as seconds,
            }:
                running = ""
                found[name] = TestOutcome(
                    name=name, outcome=outcome, message=message, seconds=seconds
                )
    if running is not None:
        name = running or "the test run"
        message = f"{name} did not finish: the process {status.replace('_', ' ')}"
        found[name] = TestOutcome(name=name, outcome="error", message=message)
    return tuple(found.values())


def _changes(lines: list[dict[str, Any]], job: Job) -> dict[str, str | None] | None:
    """Return the files that differ, None for those that are gone; None if unknown."""
    match lines[-1:]:
        case [{"left": {"files": dict(changed), "gone": list(gone)}}]:
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
