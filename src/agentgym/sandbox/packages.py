"""PythonHome: the virtual environment of a sandbox, with the packages to import."""

import hashlib
import itertools
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from agentgym.errors import SandboxError

INSIDE = Path("/run/agentgym")
"""Folder for AgentGym's files inside bubblewrap; executions mount nothing over it."""
_MOST_COPIED = 256 << 20


@dataclass(frozen=True)
class PythonHome:
    """The virtual environment of a sandbox.

    Attributes:
        python: The interpreter that the environment is based on.
        path: Folders of packages that executions can import.
    """

    python: Path
    place: Path
    path: tuple[Path, ...]

    @property
    def bin(self) -> Path:
        """The folder that has the program ``python``."""
        return self.place / "bin"

    def write(self) -> None:
        """Create the environment's files, readable for every user."""
        for name, text in self._files().items():
            self._make(name).write_text(text, encoding="utf-8")
            (self.place / name).chmod(0o644)
        for name, target in self._links().items():
            self._make(name).symlink_to(target)

    def mounts(
        self, folders: Sequence[Path], owned: ExitStack
    ) -> tuple[list[str], list[int]]:
        """Return bubblewrap options that create the environment and mount ``folders``.

        Also return the descriptors to inherit, which are closed with ``owned``.
        """
        options: list[str] = []
        descriptors = []
        names = (*self._files(), *self._links())
        places = (*(self.place / name for name in names), *self.path)
        parents = {parent for place in places for parent in place.parents}
        for parent in sorted(parents - {Path("/")}):
            options += ["--perms", "0755", "--dir", str(parent)]
        for name, text in self._files().items():
            descriptor = os.memfd_create(name)
            owned.callback(os.close, descriptor)
            os.write(descriptor, text.encode())
            os.lseek(descriptor, 0, os.SEEK_SET)
            descriptors.append(descriptor)
            place = str(self.place / name)
            options += ["--perms", "0644", "--file", str(descriptor), place]
        for name, target in self._links().items():
            options += ["--symlink", target, str(self.place / name)]
        for folder, place_of_it in zip(folders, self.path, strict=True):
            options += ["--ro-bind", str(folder), str(place_of_it)]
        return options, descriptors

    def _files(self) -> Mapping[str, str]:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return {
            "pyvenv.cfg": (
                f"home = {self.python.parent}\ninclude-system-site-packages = false\n"
            ),
            f"lib/{version}/site-packages/python_path.pth": "".join(
                f"{folder}\n" for folder in self.path
            ),
        }

    def _links(self) -> Mapping[str, str]:
        name = self.python.name
        links = {f"bin/{name}": str(self.python)}
        others = {"python", "python3"} - {name}
        return links | {f"bin/{other}": name for other in sorted(others)}

    def _make(self, name: str) -> Path:
        """Return the path of a file in the environment; create the folders above it."""
        path = self.place / name
        for parent in reversed(path.relative_to(self.place.parent).parents[:-1]):
            folder = self.place.parent / parent
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        return path


def readable_trees(
    folders: Sequence[Path], scratch: Path, *, reachable: bool
) -> list[Path]:
    """Return the folders, or copies in ``scratch`` if not every user can read them.

    With ``reachable``, bubblewrap mounts them, so their parents' permissions do not
    matter.
    """
    return [
        folder
        if _readable(folder, reachable=reachable)
        else _copied(folder, scratch / "path" / str(number))
        for number, folder in enumerate(folders)
    ]


def _readable(folder: Path, *, reachable: bool) -> bool:
    above = () if reachable else folder.parents
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in above) and all(
        mode & stat.S_IROTH and (mode & stat.S_IXOTH or not stat.S_ISDIR(mode))
        for mode in (status.st_mode for _, status in entries(folder))
        if not stat.S_ISLNK(mode)
    )


def _copied(folder: Path, target: Path) -> Path:
    size = sum(status.st_size for _, status in entries(folder))
    if size > _MOST_COPIED:
        raise SandboxError(
            f"python_path names {folder}, which the user id of executions cannot read "
            f"and which is too large to copy ({size >> 20} MB): let others read it, or "
            "install only the needed packages into a smaller folder."
        )
    shutil.copytree(folder, target, symlinks=True)
    target.parent.chmod(0o755)
    for path, status in entries(target):
        if not stat.S_ISLNK(status.st_mode):
            is_program = status.st_mode & stat.S_IXUSR
            os.chmod(path, 0o755 if is_program else 0o644)
    return target


def signature(
    folders: Sequence[Path], *, most: int = sys.maxsize, before_ns: int = sys.maxsize
) -> bytes | None:
    """Return a hash of all files' change times and sizes.

    None if there are more than ``most``, or if one has changed after ``before_ns`` or
    cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for path, status in itertools.chain(*map(entries, folders)):
            most -= 1
            if most < 0 or status.st_ctime_ns > before_ns:
                return None
            message = (path, status.st_mode, status.st_ino, status.st_size)
            times = (status.st_mtime_ns, status.st_ctime_ns)
            digest.update(f"{message} {times}\n".encode(errors="replace"))
    except OSError:
        return None
    return digest.digest()


def entries(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and ``os.stat`` result of a folder and everything below it."""
    waiting = [str(folder)]
    yield waiting[0], os.stat(folder)
    while waiting:
        with os.scandir(waiting.pop()) as found:
            for entry in sorted(found, key=lambda entry: entry.name):
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
