"""Write each execution of a sandbox to the audit log."""

from typing import Any

from agentgym.sandbox.commands import (
    Argv,
    Job,
    Program,
    PythonScript,
    RunTests,
    SandboxConfig,
)
from agentgym.sandbox.languages.base import Steps
from agentgym.sandbox.result import SandboxResult
from agentgym.security import audit

_MOST_FILES = 50


def note_execution(
    job: Job, config: SandboxConfig, result: SandboxResult | BaseException | None
) -> None:
    """Write the end of an execution to the audit log.

    ``result`` is the result or the error of the execution; None if it was cancelled.
    """
    if not audit.is_audited():
        return
    facts: dict[str, Any] = {
        "command": audit.head(_words(job)),
        "script": _script(job),
        "sha256": job.key.hex(),
        "files": {
            name: audit.digest(text)
            for name, text in sorted(job.files.items())[:_MOST_FILES]
        },
        "more_files": max(0, len(job.files) - _MOST_FILES) or None,
        "timeout_s": job.timeout_s,
        "limits": dict(vars(config.limits)),
    }
    if not isinstance(result, SandboxResult):
        failed = None if result is None else str(result)
        audit.note("not executed", **facts, error=failed)
        return
    if result.tests is not None:
        facts["tests"] = f"{result.passed} of {len(result.tests)} passed"
    audit.note(
        "executed",
        **facts,
        rung=result.rung,
        status=result.status,
        exit_code=result.exit_code,
        signal=result.signal,
        cpu_s=result.cpu_s,
        wall_s=result.wall_s,
        cached=result.cached or None,
        error=result.error or None,
    )


def _words(job: Job) -> str:
    match job.command:
        case PythonScript(path, args):
            return " ".join(("python", path, *args))
        case Program(path, args):
            return " ".join((path, *args))
        case Steps(chains=chains):
            return "; ".join(" ".join(argv) for chain in chains for argv in chain)
        case Argv(argv):
            return " ".join(argv)
        case RunTests() as tests:
            return " ".join((tests.language, "tests", *tests.paths, *tests.select))


def _script(job: Job) -> str | None:
    """Return the start of the source code that a job runs; None for other commands."""
    match job.command:
        case PythonScript(path) | Program(path):
            return audit.head(job.files[path])
    return None
