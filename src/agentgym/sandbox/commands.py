"""Configure a sandbox, and describe the commands to execute in it."""

import hashlib
import json
import os
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from agentgym.errors import SandboxError
from agentgym.sandbox.guest.settings import Limits
from agentgym.sandbox.languages import PYTHON, Steps, language_named, language_of

LONGEST_S = 86_400.0
"""The longest time limit: a day."""
_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Longest name of a file, and longest path; bytes."""


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """How to open a sandbox.

    Attributes:
        rung: Name of the rung (kind of isolation, see ``guest.settings.RUNGS``), or
            None for the safest that works on this machine.
        warm: Whether executions fork from a long-lived interpreter. A cold sandbox
            starts a new one for each.
        concurrency: Most executions at the same time.
        limits: Limits of one execution.
        cache_entries: Most results to cache; 0 for none.
        cache_bytes: Most memory of the cache.
        unsafe_local_exec: Whether to run without isolation if nothing better works.
        subprocesses: Whether programs must be able to start others, as a shell does;
            rungs that forbid it are then skipped.
        languages: Languages that executions may use in addition to Python:
            "javascript", "go", "rust". Their toolchains must be installed, and
            ``limits`` are raised to the least that they need.
        python_path: Folders to import from, after the standard library, on every rung.
            Executions can read everything in them. No other installed package can be
            imported.

    Raises:
        SandboxError: An entry of ``python_path`` is not a folder, a language is
            unknown, or a number is out of range.
    """

    rung: str | None = None
    warm: bool = True
    concurrency: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    limits: Limits = field(default_factory=Limits)
    cache_entries: int = 1024
    cache_bytes: int = 16 << 20
    unsafe_local_exec: bool = False
    subprocesses: bool = False
    languages: tuple[str, ...] = ()
    python_path: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.limits, Limits):
            raise SandboxError(f"limits takes a Limits(...), not {self.limits!r}.")
        least = {"concurrency": 1, "cache_entries": 0, "cache_bytes": 0}
        numbers = {name: getattr(self, name) for name in least}
        for name, number in {**numbers, **vars(self.limits)}.items():
            lowest = least.get(name, 1)
            if type(number) is not int or not lowest <= number < 1 << 40:
                raise SandboxError(
                    f"{name} is {number!r}: give a whole number from {lowest} on."
                )
        if isinstance(self.python_path, str | Path):
            raise SandboxError(
                f"python_path takes several folders: ({str(self.python_path)!r},)."
            )
        folders = tuple(Path(folder).resolve() for folder in self.python_path)
        for folder in folders:
            if not folder.is_dir() or "\n" in str(folder):
                raise SandboxError(
                    f"python_path names {str(folder)!r}, which is not a folder: give "
                    "folders that hold packages, such as '.venv/lib/python3.12/"
                    "site-packages'."
                )
        object.__setattr__(self, "python_path", folders)
        self._allow_languages()

    def _allow_languages(self) -> None:
        """Check the languages, and raise the limits to the least that they need."""
        if isinstance(self.languages, str):
            raise SandboxError(f"languages takes several names: ({self.languages!r},).")
        names = tuple(dict.fromkeys(self.languages))
        names = tuple(name for name in names if name != PYTHON)
        object.__setattr__(self, "languages", names)
        limits = self.limits
        for needs in (language_named(name).needs for name in names):
            more = {
                key: max(value, getattr(limits, key)) for key, value in needs.items()
            }
            limits = replace(limits, **more)
        object.__setattr__(self, "limits", limits)

    @property
    def is_usual(self) -> bool:
        """Whether it requires nothing that some sandboxes lack."""
        return self == SandboxConfig(unsafe_local_exec=self.unsafe_local_exec)


@dataclass(frozen=True)
class PythonScript:
    """``python path args...`` in the workspace; the path is relative to it."""

    path: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A program in any supported language, compiled first if needed.

    Attributes:
        path: Its file, relative to the workspace; the extension decides the language.
        args: Its arguments.
    """

    path: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunTests:
    """Run the tests of a language.

    For Python these are the ``test_*`` functions of test files, with the built-in
    runner; for JavaScript those of ``node:test``, for Go those of ``go test``, for Rust
    those of ``rustc --test``, or of ``cargo test`` if there is a ``Cargo.toml``.

    Attributes:
        paths: Test files or folders, relative to the workspace; empty for all that the
            language's runner finds, such as ``test_*.py`` and ``*_test.py``.
        select: Ids ``file::name`` to run, as in the results; empty for all of them.
        language: The language of the tests.
    """

    paths: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    language: str = PYTHON


@dataclass(frozen=True)
class Argv:
    """A command line, without a shell. ``python`` is the sandbox's interpreter."""

    argv: tuple[str, ...]


Command = PythonScript | Program | RunTests | Argv | Steps


def check_files(files: Iterable[str]) -> None:
    """Check that files with these names can be created inside the workspace.

    Raises:
        SandboxError: A name is absolute, leaves the folder, is not a plain path, or is
            also the folder of another file.
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


def _is_plain(name: object) -> bool:
    """Return whether a name is a relative path in the workspace, and not too long."""
    if not isinstance(name, str) or "\0" in name:
        return False
    parts = name.encode(errors="surrogatepass").split(b"/")
    fits = max(map(len, parts)) <= _LONGEST_NAME and len(name) <= _LONGEST_PATH
    plain = posixpath.normpath(name) == name and name not in (".", "..")
    return fits and plain and not name.startswith(("/", "../"))


def _are_texts(values: object) -> bool:
    """Return whether a value is a tuple or list of texts, and not a text itself."""
    if not isinstance(values, tuple | list):
        return False
    return all(isinstance(value, str) for value in values)


@dataclass(frozen=True)
class Job:
    """One execution to run.

    Attributes:
        files: The workspace: relative path to text.
        command: The command to run in it.
        timeout_s: Limit, in seconds, for the CPU time of all processes and for the time
            that all of them sleep. Waiting for a CPU does not count, for up to 20 times
            as long.
        collect: Whether to read changed files back.

    Raises:
        SandboxError: A file, the command or the time limit is malformed, or the command
            names a missing file.
    """

    files: dict[str, str]
    command: Command
    timeout_s: float
    collect: bool = False

    def __post_init__(self) -> None:
        check_files(self.files)
        for name, text in self.files.items():
            if not isinstance(text, str):
                raise SandboxError(
                    f"The workspace file {name!r} is not text: {text!r}."
                )
        time_s = self.timeout_s
        if not isinstance(time_s, int | float) or not 0 < time_s <= LONGEST_S:
            raise SandboxError(
                f"timeout_s is {time_s!r}: give seconds, more than 0 and at most "
                f"{LONGEST_S:.0f}."
            )
        if not isinstance(self.command, Command):
            raise SandboxError(
                f"A command is a PythonScript(...), Program(...), RunTests(...) or "
                f"Argv(...), not {self.command!r}."
            )
        if isinstance(self.command, Steps):
            return
        for name, words in vars(self.command).items():
            if name not in ("path", "language") and not _are_texts(words):
                raise SandboxError(
                    f"{name} of a command is {words!r}: give a tuple of texts, such as "
                    "('ls', '-l')."
                )
        match self.command:
            case Argv(()):
                raise SandboxError("A command line needs at least a program.")
            case PythonScript(path) | Program(path) if path not in [*self.files]:
                # It may be a list.
                raise SandboxError(
                    f"The workspace has no script {path!r}; it has "
                    f"{sorted(self.files)[:20]}."
                )
        if self.language != PYTHON:
            language_named(self.language)

    @property
    def language(self) -> str:
        """The command's language; Python by default."""
        match self.command:
            case Program(path):
                return language_of(path)
            case RunTests(language=language):
                return language
        return PYTHON

    @cached_property
    def payload(self) -> bytes:
        """JSON of the files and the command, for the guest."""
        command = self._steps()
        kind = type(command).__name__
        content = {"files": self.files, "command": {"kind": kind, **vars(command)}}
        return json.dumps(content, sort_keys=True).encode()

    def _steps(self) -> Command:
        """Return the command in the form that the guest takes."""
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
        """A hash of the job; equal for equal jobs."""
        digest = hashlib.sha256(self.payload)
        digest.update(f"{self.timeout_s} {self.collect}".encode())
        return digest.digest()


def find_tests(command: RunTests, files: Iterable[str]) -> list[str]:
    """Return the test files of a command, sorted."""
    folders = {path.rstrip("/") for path in command.paths}
    wanted = {identity.partition("::")[0] for identity in command.select}
    found = []
    for name in sorted(files):
        base = name.rpartition("/")[2]
        named = base.startswith("test_") or base.endswith("_test.py")
        parents = map(str, PurePosixPath(name).parents)
        below = not folders or not folders.isdisjoint(parents)
        meant = name in command.paths or (named and base.endswith(".py") and below)
        if meant and (not wanted or name in wanted):
            found.append(name)
    return found
