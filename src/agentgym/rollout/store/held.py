"""Held: a store's file is written by one process at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from agentgym.errors import RolloutError
from agentgym.security.private import private


def hold(path: Path) -> TextIO | None:
    """Lock a store's file until the result is closed, or this process ends.

    The lock is on a separate file: closing the store's own would release SQLite's
    locks. None is returned where no lock can be had, as on some network disks.

    Raises:
        RolloutError: Another store holds it, or the file has a further name, of which
            SQLite would not know.
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
    except OSError:  # no locks here, or no space
        return file
    return file
