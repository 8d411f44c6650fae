"""Find installed toolchains, and make them readable for the users of executions."""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.sandbox.guest.box import MountedBox, remove_tree
from agentgym.sandbox.guest.settings import SYSTEM
from agentgym.sandbox.languages import LANGUAGES
from agentgym.sandbox.languages.base import Language, Toolchain
from agentgym.sandbox.launch import published, readable_by_anyone

_ASK_S = 300.0


@functools.cache
def toolchain(name: str, *, reachable: bool = True) -> Toolchain:
    """Return the installed toolchain of a language, ready for executions.

    The first call on a machine may take up to a minute: it compiles a standard library,
    or copies a toolchain that the users of executions cannot read.

    Args:
        name: A language, as in ``LANGUAGES``.
        reachable: Whether executions can read files below private folders, because
            they are mounted.

    Raises:
        SandboxUnavailableError: It is not installed or does not work; the message names
            its Debian package.
    """
    language = LANGUAGES[name]
    programs: dict[str, Path] = {}
    for program in language.programs:
        found = shutil.which(program)
        if found is None:
            raise SandboxUnavailableError(
                f"{language.title} is not installed: `{program}` is not on the search "
                f"path. Install it (Debian, Ubuntu: apt-get install "
                f"{language.package})."
            )
        programs[program] = Path(found)
    try:
        found_here = language.find(programs, reachable=reachable)
    except (SandboxError, OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailableError(
            f"{language.title} in {programs[language.programs[0]]} cannot be used: "
            f"{error} Install another version (Debian, Ubuntu: apt-get install "
            f"{language.package})."
        ) from error
    _check_visible(language, found_here)
    return found_here


def missing(name: str) -> str:
    """Return why the toolchain of a language cannot be used; "" if it can."""
    try:
        toolchain(name)
    except SandboxUnavailableError as error:
        return str(error)
    return ""


def _check_visible(language: Language, found: Toolchain) -> None:
    for tree in found.trees:
        for place in map(Path, MountedBox.TARGETS):
            if tree.is_relative_to(place):
                raise SandboxUnavailableError(
                    f"{language.title} in {tree} is below {place}, where each "
                    "execution gets an empty folder: install it elsewhere."
                )


def ask(program: Path, *words: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the output of a program of a toolchain.

    Raises:
        SandboxError: It failed; the message quotes its last line.
    """
    ended = subprocess.run(
        [str(program), *words],
        capture_output=True,
        text=True,
        timeout=_ASK_S,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
    if ended.returncode:
        last = ended.stderr.strip().rpartition("\n")[2] or f"code {ended.returncode}"
        raise SandboxError(f"`{program.name} {' '.join(words)}` failed: {last}.")
    return ended.stdout.strip()


def remove(*folders: Path) -> None:
    """Remove folders that a toolchain made, whatever their modes."""
    for folder in folders:
        if folder.exists():
            remove_tree(str(folder))


def is_of_the_system(path: Path) -> bool:
    """Return whether executions on every rung see a path as it is."""
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def readable_tree(
    tree: Path, version: str, *, reachable: bool, keep: tuple[str, ...]
) -> Path:
    """Return a tree that executions can read: itself, or a copy that is made once.

    Args:
        tree: The folder of a toolchain.
        version: Its version: another one is copied again.
        reachable: Whether executions can read files below private folders.
        keep: Patterns of the paths below it that are copied.
    """
    if is_of_the_system(tree) or reachable or readable_by_anyone(tree):
        return tree

    def write(draft: Path) -> None:
        for pattern in keep:
            for path in tree.glob(pattern):
                target = draft / path.relative_to(tree)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, target, symlinks=True)
                else:
                    shutil.copy(path, target, follow_symlinks=False)
        for folder, _, _ in os.walk(draft):
            os.chmod(folder, 0o755)

    return published(tree.name, f"{tree} {version} {keep}", write)
