"""The private, writable folders of one execution, made before it and gone after it.

Both kinds of box have a ``workspace``, the working directory that receives the files,
and a ``temporary``, which ``TMPDIR`` names.
"""

import os

from . import libc


class MountedBox:
    """Fresh tmpfs mounts at fixed places inside the sandbox's own mount namespace."""

    workspace = "/workspace"
    temporary = "/tmp"
    _TARGETS = (workspace, temporary, "/dev/shm")

    def __init__(self, *, owner: int, size_mb: int) -> None:
        limits = f"size={size_mb}m,nr_inodes=8192"
        self._options = f"{limits},mode=0700,uid={owner},gid={owner}"

    def open(self) -> None:
        """Mount empty folders, owned by the user that the execution runs as."""
        for target in self._TARGETS:
            libc.mount_tmpfs(target, self._options)

    def close(self) -> None:
        """Unmount the folders, which frees their content."""
        for target in self._TARGETS:
            libc.unmount(target)


class DirectoryBox:
    """A directory on the host's disk, for rungs without a mount namespace."""

    def __init__(self, scratch: str, *, owner: int | None) -> None:
        self._root = os.path.join(scratch, "box")
        self._owner = owner
        self.workspace = os.path.join(self._root, "workspace")
        self.temporary = os.path.join(self._root, "tmp")

    def open(self) -> None:
        """Make the directories."""
        for path in (self._root, self.workspace, self.temporary):
            os.mkdir(path, 0o700)
            if self._owner is not None:
                os.chown(path, self._owner, self._owner)

    def close(self) -> None:
        """Remove the directories."""
        remove_tree(self._root)


Box = MountedBox | DirectoryBox


def remove_tree(root: str) -> None:
    """Remove a directory, however deep, whatever the modes of what is in it.

    Each directory below is first moved to the top, so that no path grows long and
    only one directory is open at a time. Nothing may write there meanwhile.

    Raises:
        OSError: Something is left.
    """
    waiting = [root]
    moved = 0
    while waiting:
        folder = waiting[-1]
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in os.listdir(descriptor):
                try:
                    os.unlink(name, dir_fd=descriptor)
                    continue
                except (IsADirectoryError, PermissionError):  # Linux; macOS
                    os.chmod(name, 0o700, dir_fd=descriptor)
                moved += 1
                target = os.path.join(os.path.dirname(root), f"removed-{moved}")
                os.rename(name, target, src_dir_fd=descriptor)
                waiting.insert(0, target)
        finally:
            os.close(descriptor)
        os.rmdir(folder)
        waiting.pop()
