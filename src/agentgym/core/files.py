"""Files that a killed process leaves whole, and folders that it does not leave."""

import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.errors import UsageError

_MOST_BYTES = 200
"""Of a name: file systems take 255, and temporary names are longer."""
_GRACE_S = 60.0
"""Of a temporary folder so young nobody knows whether it will yet be locked."""


def check_name(name: str) -> str:
    """Return ``name`` if a file or folder may be called so, on any disk.

    Raises:
        ValueError: Says what is wrong with it, without quoting it.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            "a name has letters, digits, '_', '-' and '.', and begins with none of "
            "the last two"
        )
    if (size := len(name.encode())) > _MOST_BYTES:
        raise ValueError(f"the name takes {size} bytes, and {_MOST_BYTES} are the most")
    return name


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, durable once this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON, atomically."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` if the block succeeds."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
    except BaseException:
        rmtree(temporary, ignore_errors=True)
        raise
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.replace(old)
    temporary.replace(path)
    sync_folder(path.parent)
    rmtree(old, ignore_errors=True)


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Yield a new folder below ``TMPDIR``, removed at the end of the block.

    It is locked as long as its process lives. What a killed one left behind of this
    ``kind`` is removed by the next that asks for one.
    """
    prefix = f"agentgym-{kind}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    """Remove a folder of ours that nobody holds."""
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            found = os.fstat(lock)
            is_ours = os.geteuid() in (0, found.st_uid)
            if not is_ours or time.time() - found.st_mtime < _GRACE_S:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(folder)
        finally:
            os.close(lock)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def agents_home() -> Path:
    """Return the folder of saved agents, below ``AGENTGYM_HOME``."""
    home = os.environ.get("AGENTGYM_HOME", "~/.agentgym")
    return Path(home).expanduser() / "agents"


def home_problem() -> str | None:
    """Say why agents cannot be saved in ``AGENTGYM_HOME``; None if they can."""
    home = place = agents_home().parent
    while not place.exists():
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK):
        return None
    return f"{home} is not writable; set AGENTGYM_HOME to a folder that is"


def require_writable_home() -> None:
    """Check that trained agents can be saved, before anything is trained.

    Raises:
        UsageError: ``AGENTGYM_HOME`` cannot be written.
    """
    if problem := home_problem():
        raise UsageError(f"Agents cannot be saved: {problem}.")
