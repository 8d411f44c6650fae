"""Define the settings of a sandbox, its commands, and their results."""

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, Self

from agentgym.core.files import whole_text
from agentgym.errors import SandboxError
from agentgym.sandbox.guest.settings import Limits
from agentgym.sandbox.language import Steps, chosen
from agentgym.sandbox.languages import PYTHON, language_named, language_of

LONGEST_S = 86_400.0  # one day: the maximum time limit of an execution
_LONGEST_NAME, _LONGEST_PATH = 255, 4000  # of each name in a path, and of a path


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """Settings of a sandbox.

    Attributes:
        rung: Name of the kind of isolation, a key of ``guest.settings.RUNGS``; None for
            the safest kind that works on this machine.
        warm: Whether executions are forked from a long-lived interpreter. If not, each
            execution starts a new interpreter.
        concurrency: Maximum number of executions at the same time.
        limits: Limits of one execution.
        cache_bytes: Maximum memory of the cached results; 0 caches none.
        unsafe_local_exec: Whether code may run without isolation if no kind of
            isolation works.
        subprocesses: Whether programs must be able to start other programs, as a shell
            does. Kinds of isolation that do not allow this are then skipped.
        languages: Languages that executions may use in addition to Python, such as
            "go" or "java". Their toolchains must be installed. ``limits``
            are raised to the minimum that these languages need.
        links: Pairs of a name and a target: symbolic links in the root folder, which
            only kinds of isolation with bubblewrap have.
        python_path: Folders of packages that executions can import, in addition to the
            standard library. Executions can read everything in these folders. They
            cannot import other installed packages.

    Raises:
        SandboxError: An entry of ``python_path`` is not a folder, a language is
            unknown, or a number is out of range.
    """

    rung: str | None = None
    warm: bool = True
    concurrency: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    limits: Limits = field(default_factory=Limits)
    cache_bytes: int = 16 << 20
    unsafe_local_exec: bool = False
    subprocesses: bool = False
    languages: tuple[str, ...] = ()
    python_path: tuple[Path, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        numbers = {"concurrency": self.concurrency, **vars(self.limits)}
        if self.cache_bytes < 0 or any(number < 1 for number in numbers.values()):
            raise SandboxError(f"The limits of a sandbox are at least 1: {self}.")
        folders = tuple(Path(folder).resolve() for folder in self.python_path)
        for folder in folders:
            if not folder.is_dir() or "\n" in str(folder):
                raise SandboxError(
                    f"python_path names {str(folder)!r}, which is not a folder: give "
                    "folders that hold packages, such as '.venv/lib/python3.12/"
                    "site-packages'."
                )
        names = tuple(n for n in dict.fromkeys(self.languages) if n != PYTHON)
        limits = vars(self.limits).copy()
        for name in names:
            for limit, least in language_named(name).needs.items():
                limits[limit] = max(limits[limit], least)
        object.__setattr__(self, "python_path", folders)
        object.__setattr__(self, "languages", names)
        object.__setattr__(self, "limits", Limits(**limits))

    @property
    def is_usual(self) -> bool:
        """Whether all settings have their defaults, except ``unsafe_local_exec``."""
        return self == SandboxConfig(unsafe_local_exec=self.unsafe_local_exec)


@dataclass(frozen=True)
class PythonScript:
    """Command that runs ``python PATH ARGS...``; PATH is relative to the workspace."""

    path: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """Command that runs a program in any supported language, compiled if needed.

    Attributes:
        path: Source file, relative to the workspace. Its extension decides the
            language.
        args: Arguments of the program.
    """

    path: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunTests:
    """Command that runs the tests in the workspace.

    Python tests are ``test_*`` functions, run by the built-in runner. JavaScript tests
    use ``node:test``, Go tests ``go test``, and Rust tests ``rustc --test``, or
    ``cargo test`` if the workspace has a ``Cargo.toml``.

    Attributes:
        paths: Test files or folders, relative to the workspace. If empty, all files
            that the language's runner finds, such as ``test_*.py`` and ``*_test.py``.
        select: Ids ``file::name`` of the tests to run, as in the results. If empty, all
            tests.
        language: The language of the tests.
    """

    paths: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    language: str = PYTHON


@dataclass(frozen=True)
class Argv:
    """Command that runs a program with arguments, without a shell.

    The program ``python`` is the sandbox's interpreter.
    """

    argv: tuple[str, ...]


# ``Steps`` are those of other languages.
Command = PythonScript | Program | RunTests | Argv | Steps


def check_files(files: Iterable[str]) -> None:
    """Check that files with these paths can be created inside the workspace.

    Raises:
        SandboxError: A path is absolute or outside of the workspace, is not in its
            shortest form, or is also the folder of another file.
    """
    names = frozenset(files)
    for name in names:
        if not _is_plain(name):
            raise SandboxError(
                f"A workspace file cannot be named {name!r}: give a plain relative "
                "path such as 'src/app.py'."
            )
        above = name
        while above := posixpath.dirname(above):
            if above in names:
                raise SandboxError(
                    f"The workspace has a file {above!r}, so {name!r} cannot be in it."
                )


def _is_plain(name: str) -> bool:
    """Return whether a name is a valid relative path of a file in the workspace."""
    encoded = name.encode(errors="surrogatepass")
    longest = max(map(len, encoded.split(b"/")))
    fits = longest <= _LONGEST_NAME and len(encoded) <= _LONGEST_PATH
    plain = posixpath.normpath(name) == name and name not in (".", "..")
    return fits and plain and not name.startswith(("/", "../")) and "\0" not in name


@dataclass(frozen=True)
class Job:
    """One execution: a command and the files to run it on.

    For the fields see :meth:`Sandbox.run`.
    """

    files: dict[str, str]
    command: Command
    timeout_s: float
    collect: bool = False

    def __post_init__(self) -> None:
        check_files(self.files)
        time_s = self.timeout_s
        if not 0 < time_s <= LONGEST_S:
            raise SandboxError(
                f"timeout_s is {time_s!r}: give seconds, more than 0 and at most "
                f"{LONGEST_S:.0f}."
            )
        match self.command:
            case PythonScript(path) | Program(path) if path not in self.files:
                raise SandboxError(
                    f"The workspace has no script {path!r}; it has "
                    f"{sorted(self.files)[:20]}."
                )
        if self.language != PYTHON:
            language_named(self.language)

    @property
    def language(self) -> str:
        """Name of the command's language; "python" if the command does not set one."""
        match self.command:
            case Program(path):
                return language_of(path)
            case RunTests(language=language):
                return language
        return PYTHON

    @cached_property
    def payload(self) -> bytes:
        """The files and the command as JSON, to send into the sandbox."""
        command = self._steps()
        kind = type(command).__name__
        content = {"files": self.files, "command": {"kind": kind, **vars(command)}}
        return json.dumps(content, sort_keys=True).encode()

    def _steps(self) -> Command:
        """Convert the command to a type that the code inside the sandbox can run."""
        match self.command:
            case Program(path, args) if self.language == PYTHON:
                return PythonScript(path, args)
            case Program(path, args):
                return language_named(self.language).program(self.files, path, args)
            case RunTests() as tests if self.language == PYTHON:
                return replace(tests, paths=tuple(find_tests(tests, self.files)))
            case RunTests(paths, select):
                return language_named(self.language).tests(self.files, paths, select)
        return self.command

    @cached_property
    def key(self) -> bytes:
        """Hash of the files, the command, the time limit and ``collect``."""
        digest = hashlib.sha256(self.payload)
        digest.update(f"{self.timeout_s} {self.collect}".encode())
        return digest.digest()


def find_tests(command: RunTests, files: Iterable[str]) -> list[str]:
    """Return the Python test files that a command selects, sorted."""
    usual = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py", re.DOTALL)
    return [
        name
        for name in chosen(sorted(files), command.paths, command.select)
        if name in command.paths or usual.fullmatch(name)
    ]


_MOST_LINES = 20_000
# Maximum length of a line in a test report, in bytes; longer lines are ignored.
_LONGEST_LINE = 64 * 1024
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
