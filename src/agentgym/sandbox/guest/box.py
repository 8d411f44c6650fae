"""The writable folders of one execution, created before it and removed after it.

Both classes have a ``workspace``, the working directory with the files, and a
``temporary``, the value of ``TMPDIR``.
"""

import itertools
import math
import os
from contextlib import suppress

from . import libc

MOST_LEFT = 20_000
"""Most files and folders that an execution may leave on the host's disk."""
_MOST_LEVELS = 200
"""Most levels of a tree to walk with siblings pending; each keeps a file open."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class MountedBox:
    """New tmpfs mounts at fixed paths in the sandbox's own mount namespace.

    Attributes:
        TARGETS: The mounted folders; they hide the host's files.
    """

    workspace = "/workspace"
    temporary = "/tmp"
    TARGETS = (workspace, temporary, "/dev/shm")

    def __init__(self, *, owner: int, size_mb: int) -> None:
        limits = f"size={size_mb}m,nr_inodes=8192"
        self._options = f"{limits},mode=0700,uid={owner},gid={owner}"

    def open(self) -> None:
        """Mount empty folders, owned by the user id of the execution."""
        for target in self.TARGETS:
            libc.mount_tmpfs(target, self._options)

    def close(self) -> bool:
        """Unmount the folders, which frees their content."""
        for target in self.TARGETS:
            libc.unmount(target)
        return True


class DirectoryBox:
    """A directory on the host's disk, for rungs without a mount namespace."""

    def __init__(self, scratch: str, *, owner: int | None) -> None:
        self._root = folder_of(scratch)
        self._owner = owner
        self.workspace = os.path.join(self._root, "workspace")
        self.temporary = os.path.join(self._root, "tmp")

    def open(self) -> None:
        """Create the directories."""
        for path in (self._root, self.workspace, self.temporary):
            os.mkdir(path, 0o700)
            if self._owner is not None:
                os.chown(path, self._owner, self._owner)

    def close(self) -> bool:
        """Remove the directories; return False on a failure, or for too many files."""
        try:
            return remove_tree(self._root, most=MOST_LEFT)
        except OSError:
            return False


Box = MountedBox | DirectoryBox


def folder_of(scratch: str) -> str:
    """Return the sandbox's directory on the host's disk, below ``scratch``."""
    return os.path.join(scratch, "box")


def holds_more(root: str, most: int) -> bool:
    """Return whether a tree has more files and folders than ``most``.

    Other processes may change it meanwhile, but cannot redirect the walk into another
    tree. A tree with too many levels to walk counts as having more.
    """
    seen = 0
    levels = [(os.open("/", _FOLDER), [root])]
    try:
        while levels:
            below: list[str] = []
            with suppress(OSError):
                folder = os.open(levels[-1][1].pop(), _FOLDER, dir_fd=levels[-1][0])
                levels.append((folder, below))
                with os.scandir(folder) as entries:
                    for entry in itertools.islice(entries, most - seen + 1):
                        seen += 1
                        if entry.is_dir(follow_symlinks=False):
                            below.append(entry.name)
            if seen > most or len(levels) > _MOST_LEVELS:
                return True
            for done in [level for level in levels if not level[1]]:
                levels.remove(done)
                os.close(done[0])
    finally:
        for folder, _ in levels:
            os.close(folder)
    return False


def remove_tree(root: str, *, most: float = math.inf) -> bool:
    """Remove a directory of any depth, whatever its entries' modes.

    A non-empty directory is first moved to the top, so that paths stay short and only
    one directory is open at a time. Nothing may write to it meanwhile.

    Returns:
        Whether everything was removed: it stops after ``most`` files and directories.

    Raises:
        OSError: An entry cannot be removed.
    """
    top = os.urandom(8).hex()  # An unpredictable prefix of names.
    waiting = [root]
    seen = 0
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if folder == root and entry.name.startswith(top):
                    continue
                seen += 1
                if seen > most:
                    return False
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                try:
                    os.rmdir(entry.path)
                except OSError:
                    os.chmod(entry.path, 0o700)
                    waiting.append(os.path.join(root, f"{top}{seen}"))
                    os.rename(entry.path, waiting[-1])
        if folder != root:
            os.rmdir(folder)
    os.rmdir(root)
    return True
