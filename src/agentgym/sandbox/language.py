"""Language: the interface to run programs, tests and expressions in one language."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from agentgym.errors import SandboxError

# Placeholder for an execution's temporary folder, in command lines and variables.
TEMPORARY = "{tmp}"
PROGRAM = f"{TEMPORARY}/program"  # path of a compiled program, outside of the workspace

# Minimum limits of a compiled language, by the field names of `Limits`.
COMPILER_NEEDS = {"memory_mb": 4096, "total_memory_mb": 1024, "processes": 256}

CommandLine = tuple[str, ...]


class SourceError(SandboxError):
    """The files of a workspace cannot be compiled or evaluated."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The command lines of one execution, usually to compile and then run a program.

    In command lines, ``{tmp}`` is replaced by the execution's temporary folder, and
    ``{guest}`` by the folder of ``sandbox.guest`` in the sandbox.

    Attributes:
        chains: Chains of command lines. A chain ends after a command line that fails.
        reader: Format of the test results: "node", "go" or "rust"; "" without tests.
        tests: For each chain, the ids ``file::name`` of its tests; or one path, if the
            ids are unknown.
        values: Whether the program writes the values of expressions to file descriptor
            4. The result then has the values as stdout, and all other output as stderr.
    """

    chains: tuple[tuple[CommandLine, ...], ...]
    reader: str = ""
    tests: tuple[tuple[str, ...], ...] = ()
    values: bool = False


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """An installed toolchain, and the files that executions need from it.

    Attributes:
        trees: Folders, except system folders, that executions must be able to read.
        variables: Environment variables of executions; ``{tmp}`` is replaced by the
            execution's temporary folder.
        layers: Folders of prepared files, such as compiled packages. For each key, an
            execution gets a folder of that name in its temporary folder, with links to
            the files.
    """

    version: str
    bin: Path | None = None
    trees: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)


class Language(ABC):
    """A programming language: makes the commands to run, test and evaluate its code.

    Attributes:
        name: The language's name in ``SandboxConfig.languages``.
        title: The language's name in messages.
        endings: Extensions of source files, without the dot.
        programs: Programs of the toolchain that must be on PATH.
        package: The Debian packages with the toolchain, for ``apt-get install``.
        needs: Minimum limits of an execution, by the field names of ``Limits``.
        forks: Whether the toolchain starts other programs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    programs: ClassVar[tuple[str, ...]]
    package: ClassVar[str]
    needs: ClassVar[Mapping[str, int]]
    forks: ClassVar[bool] = True

    @abstractmethod
    def find(self, programs: Mapping[str, Path], *, reachable: bool) -> Toolchain:
        """Prepare the installed toolchain for executions, and return it.

        Args:
            programs: Paths of the toolchain's programs, by name.
            reachable: Whether executions can read files in private folders such as
                ``/root``, because bubblewrap mounts them.

        Raises:
            SandboxError: The toolchain does not work, or is too old.
        """

    @abstractmethod
    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile and run the source file ``path``."""

    @abstractmethod
    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that run the tests in ``files``, the workspace.

        For ``paths`` and ``select`` see ``commands.RunTests``.
        """

    @abstractmethod
    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return files and steps that evaluate expressions, and write their values.

        ``asked`` are tuples (number, source file, expression). For each of them, the
        steps write one line: the number and the value as JSON.

        Raises:
            SourceError: A file cannot be used to evaluate expressions.
        """


def chosen(
    files: Iterable[str], paths: CommandLine, select: CommandLine = ()
) -> list[str]:
    """Return the files in ``paths`` with a test in ``select``; all if it is empty."""
    folders = [path.rstrip("/") for path in paths] or ["."]
    wanted = {identity.partition("::")[0] for identity in select}
    return [
        file
        for file in files
        if (not wanted or file in wanted)
        and any(each in (".", file) or file.startswith(f"{each}/") for each in folders)
    ]


def asked_by_file(
    asked: Iterable[tuple[int, str, str]],
) -> dict[str, list[tuple[int, str]]]:
    """Return the numbers and texts of expressions, by their source file."""
    found: dict[str, list[tuple[int, str]]] = {}
    for number, file, text in asked:
        found.setdefault(file, []).append((number, text))
    return found


def folder_of(path: str) -> str:
    """Return the folder of a file; "." if it is at the top of the workspace."""
    return posixpath.dirname(path) or "."


def free_name(files: Iterable[str], name: str) -> str:
    """Return ``name`` or, if ``files`` has that path, a similar path that is free."""
    taken = frozenset(files)
    folder, base = posixpath.split(name)
    while any(path == name or path.startswith(f"{name}/") for path in taken):
        base = f"_{base}"
        name = posixpath.join(folder, base)
    return name
