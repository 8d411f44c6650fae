"""Describe a language to a sandbox: how its programs, tests and values are run."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from agentgym.errors import SandboxError

TEMPORARY = "{tmp}"
"""Stands in a command line or a variable for the execution's temporary folder."""
PROGRAM = f"{TEMPORARY}/program"
"""Where a compiled program is written, outside the workspace."""

CommandLine = tuple[str, ...]


class SourceError(SandboxError):
    """The files of a workspace cannot be compiled or evaluated."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The command lines of one execution: compile, then run.

    ``{tmp}`` in them stands for its temporary folder, ``{guest}`` for that of the
    guest's own files.

    Attributes:
        chains: Each is run from its first command line to the first that fails.
        reader: How their output describes tests: "node", "go", "rust", or "" if it
            describes none.
        tests: For each chain, the ids ``file::name`` of its tests, or its file.
        values: Whether descriptor 4 is the standard output, and the program's own
            prints go to standard error.
    """

    chains: tuple[tuple[CommandLine, ...], ...]
    reader: str = ""
    tests: tuple[tuple[str, ...], ...] = ()
    values: bool = False


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """An installed toolchain, and its files that executions need.

    Attributes:
        version: Its own description of its version.
        bin: The folder of its programs; None if they are on the usual path.
        trees: Folders that executions read, outside the system's.
        variables: Environment variables; ``{tmp}`` stands for the temporary folder of
            an execution, ``{path of a tree}`` is written out.
        layers: For each name, a folder of ready-made files: an execution gets a folder
            of this name below its temporary one, with links to its entries.
    """

    version: str
    bin: Path | None = None
    trees: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, Path] = field(default_factory=dict)


class Language(ABC):
    """One language: its files, and the steps to run, test and evaluate them.

    Attributes:
        name: As in ``SandboxConfig.languages``.
        title: As people write it.
        endings: How the names of its source files end, without the dot.
        programs: Programs of its toolchain that must be on the search path.
        package: The Debian package that brings them.
        needs: Least limits, by the names of ``Limits``.
        forks: Whether its toolchain starts other programs.
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
        """Return the toolchain of these programs, ready to be used.

        Args:
            programs: The path of each of ``self.programs``.
            reachable: Whether executions can read files below private folders, because
                they are mounted.

        Raises:
            SandboxError: The toolchain does not work, or is too old.
        """

    @abstractmethod
    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile and run the program in ``path``."""

    @abstractmethod
    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that run tests.

        Args:
            files: The workspace.
            paths: Test files or folders; empty for all.
            select: Ids ``file::name``; empty for all.
        """

    @abstractmethod
    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return files and steps that write the values of expressions as JSON.

        Args:
            files: The workspace.
            asked: A number, a source file and an expression each. The steps write a
                line ``number JSON`` for each.

        Raises:
            SourceError: A file cannot be evaluated in.
        """


def chosen(files: Iterable[str], paths: CommandLine) -> list[str]:
    """Return those of the files that are named by paths, or are below one of them."""
    folders = [path.rstrip("/") for path in paths]
    return [
        file
        for file in files
        if not folders
        or any(
            folder in (".", file) or file.startswith(f"{folder}/") for folder in folders
        )
    ]


def folder_of(path: str) -> str:
    """Return the folder of a file, "." for the workspace itself."""
    return posixpath.dirname(path) or "."


def free_name(files: Iterable[str], name: str) -> str:
    """Return a name that no file of the workspace is in the way of."""
    taken = frozenset(files)
    folder, base = posixpath.split(name)
    while any(path == name or path.startswith(f"{name}/") for path in taken):
        base = f"_{base}"
        name = posixpath.join(folder, base)
    return name
