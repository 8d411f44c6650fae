"""Create the writable folders of one execution, and remove them after it.

Both classes have two paths: ``workspace``, the working directory with the files, and
``temporary``, the folder for temporary files (``TMPDIR``).
"""

import itertools
import math
import os
from contextlib import suppress

from . import libc

# Maximum number of files and folders that an execution may make on the host's disk.
MOST_LEFT = 20_000
# Maximum number of folders to keep open at once while a folder tree is walked.
_MOST_LEVELS = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class MountedBox:
    """Creates an execution's folders as tmpfs mounts, which hide the host's files."""

    workspace = "/workspace"
    temporary = "/tmp"
    TARGETS = (workspace, temporary, "/dev/shm")

    def __init__(self, *, owner: int, size_mb: int) -> None:
        limits = f"size={size_mb}m,nr_inodes=8192"
        self._options = f"{limits},mode=0700,uid={owner},gid={owner}"

    def open(self) -> None:
        """Mount empty folders that belong to the execution's user id."""
        for target in self.TARGETS:
            libc.mount_tmpfs(target, self._options)

    def close(self) -> bool:
        """Unmount the folders, which deletes their content; return True."""
        for target in self.TARGETS:
            libc.unmount(target)
        return True


class DirectoryBox:
    """Creates an execution's folders on the host's disk, without mounting."""

    def __init__(self, scratch: str, *, owner: int | None) -> None:
        self._root = folder_of(scratch)
        self._owner = owner
        self.workspace = os.path.join(self._root, "workspace")
        self.temporary = os.path.join(self._root, "tmp")

    def open(self) -> None:
        """Create empty folders that belong to the execution's user id."""
        for path in (self._root, self.workspace, self.temporary):
            os.mkdir(path, 0o700)
            if self._owner is not None:
                os.chown(path, self._owner, self._owner)

    def close(self) -> bool:
        """Remove the folders; return False if that fails, or for too many files."""
        try:
            return remove_tree(self._root, most=MOST_LEFT)
        except OSError:
            return False


Box = MountedBox | DirectoryBox


def folder_of(scratch: str) -> str:
    """Return the folder in ``scratch`` that has the workspace and temporary files."""
    return os.path.join(scratch, "box")


def holds_more(root: str, most: int) -> bool:
    """Return whether a folder tree has more than ``most`` entries, or too many levels.

    Other processes may change the tree meanwhile, but cannot redirect the function into
    another one.
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
    """Remove a folder and everything in it, even if it is deep or write-protected.

    Other processes must not write to ``root``. Return False if there are more than
    ``most`` entries.
    """
    # Each non-empty subfolder is first moved into the root, so that paths stay short
    # and one folder is open at a time.
    top = os.urandom(8).hex()  # Unpredictable prefix of moved directories' names.
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
