"""Language: the interface for running programs, tests and expressions of a language."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from agentgym.errors import SandboxError

TEMPORARY = "{tmp}"
"""Placeholder for the execution's temporary folder in command lines and variables."""
PROGRAM = f"{TEMPORARY}/program"
"""Path of a compiled program, outside of the workspace."""

CommandLine = tuple[str, ...]


class SourceError(SandboxError):
    """The files of a workspace cannot be compiled or evaluated."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The command lines of one execution: compile, then run.

    ``{tmp}`` is replaced by its temporary folder, ``{guest}`` by the folder of the
    guest's files.

    Attributes:
        chains: Command lines; each chain stops at the first that fails.
        reader: Format of the tests' output: "node", "go", "rust", or "" for none.
        tests: For each chain, the ids ``file::name`` of its tests, or its file.
        values: Whether descriptor 4 becomes standard output, and the program's own
            output goes to standard error.
    """

    chains: tuple[tuple[CommandLine, ...], ...]
    reader: str = ""
    tests: tuple[tuple[str, ...], ...] = ()
    values: bool = False


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """An installed toolchain, and the files that executions need from it.

    Attributes:
        version: The version as it describes itself.
        bin: The folder of its programs; None if they are on the default PATH.
        trees: Folders that executions read, outside of the system's.
        variables: Environment variables; ``{tmp}`` is replaced by the execution's
            temporary folder, ``{path of a tree}`` by that path.
        layers: By name, folders of prepared files: an execution gets a folder of this
            name in its temporary folder, with links to the entries.
    """

    version: str
    bin: Path | None = None
    trees: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, Path] = field(default_factory=dict)


class Language(ABC):
    """One language: its files, and how to run, test and evaluate them.

    Attributes:
        name: As in ``SandboxConfig.languages``.
        title: Its name for people.
        endings: Extensions of its source files, without the dot.
        programs: Programs of its toolchain that must be on PATH.
        package: The Debian package with the toolchain.
        needs: Least limits, by the field names of ``Limits``.
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
        """Return the toolchain with these programs, ready for use.

        Args:
            programs: The path of each of ``self.programs``.
            reachable: Whether executions can read files in private folders, because
                they are mounted.

        Raises:
            SandboxError: The toolchain does not work, or is too old.
        """

    @abstractmethod
    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile and run the program ``path``."""

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
            asked: Number, source file and expression of each. The steps write a line
                ``number JSON`` for each.

        Raises:
            SourceError: A file cannot be used to evaluate expressions.
        """


def chosen(files: Iterable[str], paths: CommandLine) -> list[str]:
    """Return the files that paths name, or that are below one of them."""
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
    """Return the folder of a file, "." for the workspace."""
    return posixpath.dirname(path) or "."


def free_name(files: Iterable[str], name: str) -> str:
    """Return a file name that does not clash with the workspace's files."""
    taken = frozenset(files)
    folder, base = posixpath.split(name)
    while any(path == name or path.startswith(f"{name}/") for path in taken):
        base = f"_{base}"
        name = posixpath.join(folder, base)
    return name
