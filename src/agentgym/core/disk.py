"""Disks that are full or fail: how that is told, and waiting for space."""

import errno
import sqlite3
import time
from collections.abc import Callable

WAIT_S = 10.0
"""How long a run waits for space or for the disk before it ends."""
BEAT_S = 0.5
"""How often it tries again, and how often whoever waits for something looks up."""

Beat = Callable[[str | None], None]
"""Called in each such while with what writing waits for, None if for nothing; what it
raises ends the waiting."""

_NUMBERS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than allowed",
    errno.EIO: "the disk fails",
}
_TEXTS = {"No space left on device": "the disk is full"}
_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or fails",
    sqlite3.SQLITE_BUSY: "another program has locked the database",
    sqlite3.SQLITE_LOCKED: "another program has locked the database",
}


def no_beat(stalled: str | None) -> None:
    """Wait for as long as it takes."""


def disk_trouble(error: BaseException | None) -> str | None:
    """Return in words what is wrong with the disk; None if that is not the cause.

    Libraries that raise errors of their own quote the system's words.
    """
    while error is not None:
        told = None
        if isinstance(error, OSError):
            told = _NUMBERS.get(error.errno or 0)
        elif isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", None)
            told = None if code is None else _SQLITE.get(code & 0xFF)
        told = told or next((t for s, t in _TEXTS.items() if s in str(error)), None)
        if told is not None:
            return told
        error = error.__cause__ or error.__context__
    return None


def patiently(write: Callable[[], None], beat: Beat, wait_s: float = WAIT_S) -> None:
    """Write, and again for ``wait_s`` seconds while the disk is full or fails."""
    until = time.monotonic() + wait_s
    while True:
        try:
            write()
        except Exception as error:
            why = disk_trouble(error)
            if why is None or time.monotonic() >= until:
                raise
        else:
            beat(None)
            return
        beat(why)
        time.sleep(BEAT_S)
