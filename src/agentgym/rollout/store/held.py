"""Lock a store's file: only one process writes it at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from agentgym.errors import RolloutError
from agentgym.security.private import private


def hold(path: Path) -> TextIO | None:
    """Lock a store's file until the result is closed or this process ends.

    The lock is on a separate file: closing the store's own file would release SQLite's
    locks. Returns None if that file cannot be opened. Where the file system has no
    locks, as on some network disks, nothing is locked.

    Raises:
        RolloutError: Another store holds the lock, or the file has a hard link, of
            which SQLite would not know.
    """
    path = path.resolve()  # links to it are the same file
    with suppress(OSError):
        if (names := path.stat().st_nlink) > 1:
            raise RolloutError(
                f"The rollout store {path} has {names} names (hard links), and a "
                "log next to each would corrupt it. Name a copy, or remove the other."
            )
    try:
        lock = path.with_name(f".{path.name}.lock")
        file = open(lock, "a+", opener=private)  # noqa: SIM115
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except BlockingIOError:
        file.seek(0)
        holder = file.read() or "unknown"
        file.close()
        raise RolloutError(
            f"Process {holder} writes to the rollout store {path}. End it, or name "
            "another file."
        ) from None
    except OSError:  # no locks on this file system, or no space
        return file
    return file
