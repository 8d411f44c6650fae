"""Create files and folders that only this user can read. Standard library only.

Existing files keep their mode: users who share a run changed it on purpose.
"""

import os
from contextlib import suppress
from pathlib import Path

_FILE = 0o600
_FOLDER = 0o700


def private(path: str | Path, flags: int) -> int:
    """Open a file, created as private; use it as the ``opener`` of `open`."""
    return os.open(path, flags, _FILE)


def make_private_folder(path: Path) -> None:
    """Make a folder that only this user can enter; its parents get the usual mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=_FOLDER)
    if not path.is_dir():
        raise NotADirectoryError(20, "a file of this name exists", str(path))


def make_private_file(path: Path) -> None:
    """Create an empty private file if there is none, for a library that opens it later.

    An existing file is not opened: closing it would release SQLite's locks.
    """
    with suppress(FileExistsError):
        os.close(private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
