"""Define the settings of a sandbox, and the commands to run in it."""

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from agentgym.errors import SandboxError
from agentgym.sandbox.guest.settings import Limits
from agentgym.sandbox.language import Steps, chosen
from agentgym.sandbox.languages import PYTHON, language_named, language_of

LONGEST_S = 86_400.0
"""Maximum time limit of an execution, in seconds: one day."""
_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Maximum length of each name in a path, and of a path, in bytes."""


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
        if not isinstance(self.limits, Limits):
            raise SandboxError(f"limits takes a Limits(...), not {self.limits!r}.")
        least = {"concurrency": 1, "cache_bytes": 0}
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
        """Check ``languages``, and increase ``limits`` to the minimum that they need.

        Raises:
            SandboxError: A language is unknown.
        """
        if isinstance(self.languages, str):
            raise SandboxError(f"languages takes several names: ({self.languages!r},).")
        names = tuple(dict.fromkeys(self.languages))
        names = tuple(name for name in names if name != PYTHON)
        object.__setattr__(self, "languages", names)
        limits = vars(self.limits).copy()
        for name in names:
            for limit, least in language_named(name).needs.items():
                limits[limit] = max(limits[limit], least)
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


Command = PythonScript | Program | RunTests | Argv | Steps
"""Types of commands that a sandbox runs; ``Steps`` are those of other languages."""


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


def _is_plain(name: object) -> bool:
    """Return whether a name is a valid relative path of a file in the workspace."""
    if not isinstance(name, str) or "\0" in name:
        return False
    encoded = name.encode(errors="surrogatepass")
    longest = max(map(len, encoded.split(b"/")))
    fits = longest <= _LONGEST_NAME and len(encoded) <= _LONGEST_PATH
    plain = posixpath.normpath(name) == name and name not in (".", "..")
    return fits and plain and not name.startswith(("/", "../"))


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
            if name in ("path", "language"):
                continue
            is_list = isinstance(words, tuple | list)
            if not is_list or not all(isinstance(word, str) for word in words):
                raise SandboxError(
                    f"{name} of a command is {words!r}: give a tuple of texts, such as "
                    "('ls', '-l')."
                )
        match self.command:
            case Argv(()):
                raise SandboxError("A command line needs at least a program.")
            case PythonScript(path) | Program(path) if path not in [*self.files]:
                # A path of a wrong type, such as a list, cannot be looked up in a dict.
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
