"""What to execute in a workspace: a script, its tests, or any command."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

from agentgym.errors import SandboxError


@dataclass(frozen=True)
class PythonScript:
    """``python path args...`` in the workspace.

    Attributes:
        path: The script, relative to the workspace.
        args: Its arguments.
    """

    path: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunTests:
    """Run the ``test_*`` functions of test files with the built-in runner.

    Attributes:
        paths: Test files or folders, relative to the workspace; empty for every
            ``test_*.py`` and ``*_test.py`` in it.
        select: Ids ``file.py::test_name`` to run; empty for all of them.
    """

    paths: tuple[str, ...] = ()
    select: tuple[str, ...] = ()


@dataclass(frozen=True)
class Argv:
    """Any command line, executed without a shell in the workspace.

    Attributes:
        argv: The program and its arguments. ``python`` is the sandbox's interpreter.
    """

    argv: tuple[str, ...]


Command = PythonScript | RunTests | Argv


def check_files(files: Mapping[str, str]) -> None:
    """Check that every name stays inside the workspace.

    Raises:
        SandboxError: A name is absolute, climbs, or is no plain path.
    """
    for name in files:
        path = PurePosixPath(name)
        plain = str(path) == name and name not in ("", ".") and "\0" not in name
        if not plain or path.is_absolute() or ".." in path.parts:
            raise SandboxError(
                f"A workspace file cannot be named {name!r}: give a plain relative "
                "path such as 'src/app.py'."
            )


@dataclass(frozen=True)
class Job:
    """One execution to do.

    Attributes:
        payload: What the guest is given: JSON of the files and the command.
        names: Of the files.
        tests: Whether the command runs tests.
        timeout_s: Wall-clock limit in seconds.
        collect: Whether to read changed files back.
    """

    payload: bytes
    names: tuple[str, ...]
    tests: bool
    timeout_s: float
    collect: bool

    @classmethod
    def create(
        cls,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float,
        collect: bool = False,
    ) -> Self:
        """Check and encode files and a command.

        Raises:
            SandboxError: A file name or the command is malformed, or the command
                names a file that the workspace does not have.
        """
        check_files(files)
        content = {"files": dict(files), "command": _encode(command, files)}
        payload = json.dumps(content, sort_keys=True).encode()
        tests = isinstance(command, RunTests)
        return cls(payload, tuple(files), tests, timeout_s, collect)

    @property
    def key(self) -> bytes:
        """A hash: two jobs with the same one ask for the same."""
        digest = hashlib.sha256(self.payload)
        digest.update(f"{self.timeout_s} {self.collect}".encode())
        return digest.digest()


def _encode(command: Command, files: Mapping[str, str]) -> dict[str, object]:
    """Return the command as the guest expects it."""
    match command:
        case Argv(argv):
            if not argv:
                raise SandboxError("A command line needs at least a program.")
            return {"kind": "argv", "argv": argv}
        case PythonScript(path, args):
            if path not in files:
                raise SandboxError(
                    f"The workspace has no script {path!r}; it has "
                    f"{sorted(files)[:20]}."
                )
            return {"kind": "script", "path": path, "args": args}
        case RunTests():
            found = find_tests(command, files)
            return {"kind": "tests", "files": found, "select": command.select}


def find_tests(command: RunTests, files: Mapping[str, str]) -> list[str]:
    """Return the test files that a command means, sorted."""
    found = []
    for name in sorted(files):
        base = PurePosixPath(name).name
        is_test = base.endswith("_test.py") or (
            base.startswith("test_") and base.endswith(".py")
        )
        if name in command.paths or (is_test and _below(name, command.paths)):
            found.append(name)
    if command.select:
        wanted = {identity.partition("::")[0] for identity in command.select}
        found = [name for name in found if name in wanted]
    return found


def _below(name: str, folders: tuple[str, ...]) -> bool:
    """Return whether a file is in one of the folders; true if there are none."""
    parents = {str(parent) for parent in PurePosixPath(name).parents}
    return not folders or any(folder.rstrip("/") in parents for folder in folders)
