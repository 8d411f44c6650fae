"""From what a sandbox sent back to a result. All of it may be forged: trust nothing."""

import json
import os
from collections.abc import Iterator, Mapping
from signal import Signals
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox.commands import check_files
from agentgym.sandbox.guest_process import Raw
from agentgym.sandbox.result import Outcome, SandboxResult, Status, TestOutcome

_OUTCOMES: dict[str, Outcome] = {
    "passed": "passed",
    "failed": "failed",
    "error": "error",
}


def decode(
    raw: Raw,
    *,
    files: Mapping[str, str],
    tests: bool,
    collect: bool,
    rung: str,
    warm: bool,
) -> SandboxResult:
    """Return the result of one execution.

    Args:
        raw: What came back.
        files: The workspace as it was given.
        tests: Whether the command ran tests.
        collect: Whether changed files were asked for.
        rung: Name of the rung.
        warm: Whether the zygote was warm.
    """
    lines = list(_lines(bytes(raw.report.data)))
    status, exit_code, signal = _ending(raw.reply)
    error = ""
    if raw.reply["over_memory"]:
        error = "Its processes together used more memory than total_memory_mb allows."
    elif not lines or "ready" not in lines[0]:
        why = lines[0].get("setup_error") if lines else "it ended during confinement"
        if status != "timed_out":
            status, exit_code, error = "sandbox_error", None, f"Setup failed: {why}"
    outcomes = _tests(lines, status) if tests and status != "sandbox_error" else None
    return SandboxResult(
        status=status,
        exit_code=exit_code,
        signal=signal,
        stdout=raw.stdout.data.decode(errors="replace"),
        stderr=raw.stderr.data.decode(errors="replace"),
        truncated=any(s.seen > s.keep for s in (raw.stdout, raw.stderr)),
        tests=outcomes,
        files=_changes(lines, files) if collect else None,
        wall_s=raw.reply["wall_s"],
        cpu_s=raw.reply["cpu_s"],
        rung=rung,
        warm=warm,
        error=error,
    )


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the well-formed lines of a report."""
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _ending(reply: Mapping[str, Any]) -> tuple[Status, int | None, int | None]:
    """Return status, exit code and signal."""
    if reply["timed_out"]:
        return "timed_out", None, None
    if reply["over_memory"]:
        return "killed", None, Signals.SIGKILL
    status = reply["status"]
    if status is None:
        return "sandbox_error", None, None
    code = os.waitstatus_to_exitcode(status)
    return ("killed", None, -code) if code < 0 else ("exited", code, None)


def _tests(lines: list[dict[str, Any]], status: Status) -> tuple[TestOutcome, ...]:
    """Return the outcome of each test, and an error for one that did not end."""
    found: dict[str, TestOutcome] = {}
    running = ""
    done = False
    for line in lines:
        if "start" in line:
            running = str(line["start"])
        elif "loaded" in line:
            running = ""
        elif "done" in line:
            done = True
        elif outcome := _OUTCOMES.get(str(line.get("outcome"))):
            name = str(line.get("test"))
            seconds = line.get("seconds")
            found[name] = TestOutcome(
                name=name,
                outcome=outcome,
                message=str(line.get("message", "")),
                seconds=seconds if isinstance(seconds, float) else 0.0,
            )
            running = ""
    if not done:
        name = running or "the test run"
        message = f"{name} did not finish: the process {status.replace('_', ' ')}"
        found[name] = TestOutcome(name=name, outcome="error", message=message)
    return tuple(found.values())


def _changes(
    lines: list[dict[str, Any]], files: Mapping[str, str]
) -> dict[str, str | None] | None:
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
    return {**changed, **{name: None for name in files if name in missing}}
