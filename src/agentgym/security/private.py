"""Create files and folders that only this user can read.

The permissions of existing files are not changed, because a user may have changed them
to share a run.
"""

import os
from contextlib import suppress
from pathlib import Path


def private(path: str | Path, flags: int) -> int:
    """Open a file; if it is new, only this user can read it.

    An ``opener`` for :func:`open`.
    """
    return os.open(path, flags, 0o600)


def make_private_folder(path: Path) -> None:
    """Make a folder that only this user can enter; do nothing if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(20, "a file of this name exists", str(path))


def make_private_file(path: Path) -> None:
    """Create an empty file that only this user can read; do nothing if it exists."""
    # For SQLite: closing an existing file would release SQLite's locks in this process.
    with suppress(FileExistsError):
        os.close(private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
