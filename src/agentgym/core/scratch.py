"""Temporary folders that do not outlive their process for long."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GRACE_S = 60.0  # a folder so young may not be locked yet


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
        shutil.rmtree(folder, ignore_errors=True)
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
            shutil.rmtree(folder)
        finally:
            os.close(lock)
