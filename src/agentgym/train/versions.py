"""Saved agents in ``AGENTGYM_HOME``: each name has numbered versions and a default.

::

    agents/coding/1/agent.json, model/
    agents/coding/2/agent.json, model/
    agents/coding/default                the default's number
    agents/coding/pinned                 exists if no run may change the default

``agentgym agents list`` must start fast, so this module imports nothing heavy.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from agentgym.core.files import (
    agents_folder,
    require_writable_state,
    sync_folder,
    write_atomically,
)
from agentgym.errors import NotFoundError, UsageError
from agentgym.security.files import make_private_folder

AGENT_FILE = "agent.json"
_DEFAULT = "default"
_PINNED = "pinned"
_LOCK = ".lock"
_UNFINISHED = ".saving"
_WEIGHTS = ".safetensors"
_NAME = re.compile(r"\w[\w.-]*")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class Version(NamedTuple):
    """One version of a saved agent; ``str()`` gives ``coding@3``."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}@{self.number}"

    @property
    def path(self) -> Path:
        """The version's folder."""
        return agents_folder() / self.name / str(self.number)

    @classmethod
    def at(cls, folder: Path) -> Self | None:
        """Return the version saved in ``folder``; None if no version is saved in it."""
        folder = Path(os.path.abspath(folder))
        name, number = folder.parent.name, folder.name
        home = os.path.abspath(agents_folder())
        if str(folder.parent.parent) != home or not _is(name, number):
            return None
        return cls(name, int(number))


class Versions:
    """The saved versions of an agent."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a name for an agent: use letters, digits, _, - "
                "and ., with a letter, a digit or _ first."
            )
        self.name = name
        self._folder = agents_folder() / name

    def all(self) -> list[Version]:
        """Return the complete versions, oldest first."""
        found = (path.parent.name for path in self._folder.glob(f"*/{AGENT_FILE}"))
        return sorted(Version(self.name, int(n)) for n in found if _is(self.name, n))

    def default(self) -> Version | None:
        """Return the default version; None if none was chosen, or it was deleted."""
        try:
            number = (self._folder / _DEFAULT).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return None
        return next((each for each in self.all() if str(each.number) == number), None)

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """Lock the versions against changes by other processes, within the block."""
        require_writable_state()
        make_private_folder(agents_folder().parent)
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self

    def add(self, agent: Path) -> Version:
        """Copy an agent's folder as the next version.

        The caller must hold the lock of :meth:`locked`. Other processes see the new
        version complete or not at all. Weights become hard links if the file system
        supports them.
        """
        unfinished = self._folder / _UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process
        try:
            shutil.copytree(agent, unfinished, copy_function=_link_or_copy)
            version = Version(self.name, self._next())
            unfinished.rename(version.path)  # fails if it exists
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync_folder(self._folder)
        return version

    def set_default(self, version: Version, *, pinned: bool = False) -> None:
        """Make ``version`` the default; if ``pinned``, later runs may not change it."""
        write_atomically(self._folder / _DEFAULT, f"{version.number}\n")
        if pinned:
            write_atomically(self._folder / _PINNED, f"{version.number}\n")
        else:
            self.unpin()

    def unpin(self) -> None:
        """Allow later runs to change the default version again."""
        (self._folder / _PINNED).unlink(missing_ok=True)

    @property
    def is_pinned(self) -> bool:
        """Whether the default exists and a user chose it, so that no run changes it."""
        return (self._folder / _PINNED).is_file() and self.default() is not None

    def _next(self) -> int:
        """Return a number above all versions', and above a deleted default's."""
        taken = [path.name for path in self._folder.iterdir()]
        if (self._folder / _DEFAULT).is_file():
            named = (self._folder / _DEFAULT).read_bytes().decode(errors="replace")
            taken.append(named.strip())
        return 1 + max((int(n) for n in taken if _NUMBER.fullmatch(n)), default=0)


def saved_names() -> list[str]:
    """Return the names of saved agents, sorted."""
    found = agents_folder().glob(f"*/*/{AGENT_FILE}")
    names = ((path.parent.parent.name, path.parent.name) for path in found)
    return sorted({name for name, number in names if _is(name, number)})


def find(text: str) -> Version:
    """Return the saved version that a text such as ``coding@3`` names.

    A name without a number, such as ``coding``, means the default version.
    """
    name, at, number = text.partition("@")
    names = saved_names()
    if name not in names:
        known = [str(each) for found in names for each in Versions(found).all()]
        hint = "Train one with `agentgym train SCENARIO`."
        raise NotFoundError("trained agent", text, known, hint)
    versions = Versions(name)
    every = versions.all()
    listed = ", ".join(map(str, every))
    if at and not _NUMBER.fullmatch(number):
        raise UsageError(
            f"{text!r} means no version of {name}: write a number after the @. "
            f"Available: {listed}."
        )
    if at:
        for each in every:
            if str(each.number) == number:
                return each
        raise NotFoundError(f"version of {name}", text, map(str, every))
    default = versions.default()
    if default is None:
        why = "the version that was it is gone"
        if not (agents_folder() / name / _DEFAULT).exists():
            why = "no version was better than the untrained agent beyond chance"
        raise UsageError(
            f"{name} has no default: {why}. Name a version, as in {every[-1]}, or "
            f"choose one with `agentgym agents use {every[-1]}`. Available: {listed}."
        )
    return default


def _is(name: str, number: str) -> bool:
    """Return whether ``name`` and ``number`` can be the folder names of a version."""
    return bool(_NAME.fullmatch(name) and _NUMBER.fullmatch(number))


def _link_or_copy(source: str, target: str) -> None:
    """Copy a file, or make a hard link if it has weights, which never change."""
    if target.endswith(_WEIGHTS):
        with suppress(OSError):  # another file system, or no hard links
            os.link(os.path.realpath(source), target)
            return
    shutil.copy2(source, target)
