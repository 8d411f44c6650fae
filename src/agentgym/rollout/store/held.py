"""Lock a store's file: only one process writes it at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from agentgym.errors import RolloutError
from agentgym.security.private import private


def hold(path: Path) -> TextIO | None:
    """Lock a store's file until the returned file is closed or this process ends.

    The lock is on a separate lock file, because closing the store's own file would
    release SQLite's locks. The store is not locked if the lock file cannot be opened
    (then None is returned), or if the file system has no locks, like some network
    disks.

    Raises:
        RolloutError: Another process has the lock, or the file has a second name (a
            hard link), which would let SQLite corrupt it.
    """
    path = path.resolve()  # a symbolic link and its target have the same lock
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
