"""Prepare the start of a zygote (an interpreter that forks one process per execution).

An interpreter in a private folder such as ``/root`` is mounted by bubblewrap. Without
bubblewrap, executions use a copy, since their user id cannot read it there.
"""

import atexit
import functools
import grp
import hashlib
import itertools
import os
import pwd
import shutil
import socket
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from agentgym.core.files import scratch_folder
from agentgym.errors import SandboxError
from agentgym.sandbox.guest.settings import (
    DEVICES,
    SYSTEM,
    SYSTEM_FILES,
    ZERO,
    ZygoteSettings,
)

# Folder for AgentGym's files inside bubblewrap; executions mount nothing over it.
INSIDE = Path("/run/agentgym")
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


GUEST = Path(__file__).with_name("guest")
_GUEST_INSIDE = INSIDE / "guest"
_FIRST_IDENTITY = 60600  # Unassigned by Debian and by systemd: 60578-61183.
_IDENTITIES = 400
_CACHE = Path("/var/cache/agentgym")
_LAYOUT = 2  # Increase it when the layout changes: old copies are then not used.
_NOT_COPIED = """
site-packages test idlelib tkinter turtledemo ensurepip lib2to3 config-* *.opt-?.pyc *.a
"""
_PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
_CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "KILL")
_BOOTSTRAP = """\
import sys, types
guest = types.ModuleType("_agentgym_guest")
guest.__path__ = [sys.argv[1]]
sys.modules["_agentgym_guest"] = guest
from _agentgym_guest.zygote import main
main(int(sys.argv[2]), sys.argv[3])
"""


def reserve_identity() -> tuple[int, socket.socket]:
    """Reserve a user and group id for the executions of one zygote."""
    # Each zygote needs its own: RLIMIT_NPROC counts all processes of a user id, and the
    # clean-up kills all of them.
    for identity in range(_FIRST_IDENTITY, _FIRST_IDENTITY + _IDENTITIES):
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):
            lock.bind(f"\0agentgym-sandbox-{identity}")
            if not _is_somebodys(identity):
                return identity, lock
        lock.close()
    raise SandboxError(
        f"All {_IDENTITIES} sandbox user ids from {_FIRST_IDENTITY} on are in use: "
        "close other runs, or lower `concurrency`."
    )


def _is_somebodys(identity: int) -> bool:
    """Return whether an account, a group or a running process has this id."""
    for known in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            known(identity)
            return True
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            lines = status.read_bytes().split(b"\nUid:", 1)[-1]
            if str(identity).encode() in lines.split(b"\n", 1)[0].split():
                return True
    return False


def own_python() -> Path:
    """Return the Python that runs this process; the base of a virtual environment."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = Path(sys.base_prefix).resolve() / "bin" / name
    return python if python.exists() else Path(sys.executable).resolve()


def readable_by_anyone(path: Path) -> bool:
    """Return whether every user can read a path and enter its parent folders."""
    parents = path.resolve().parents
    reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in parents)
    return reachable and bool(path.stat().st_mode & stat.S_IROTH)


@functools.cache
def readable_python() -> Path:
    """Return the path of a Python that every user can read: this one, or a copy."""
    python = own_python()
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    if readable_by_anyone(python) and readable_by_anyone(stdlib):
        return python
    prefix = python.parents[1]
    identity = f"{_LAYOUT} {prefix} {sys.version} {stdlib.stat().st_mtime_ns}"
    copy = published("python", identity, functools.partial(_copy, python, stdlib))
    return copy / "bin" / python.name


def published(name: str, identity: str, write: Callable[[Path], None]) -> Path:
    """Return a cached folder that every user can read; create it if needed."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    target = _cache_folder() / f"{name}-{digest}"
    if target.is_dir() and target.stat().st_uid == os.getuid():
        return target
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    draft.chmod(0o755)
    try:
        write(draft)
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)
        if not target.is_dir():
            raise
    except BaseException:
        shutil.rmtree(draft)
        raise
    return target


@functools.cache
def _cache_folder() -> Path:
    """Return the cache folder, which executions can read and only this user can write.

    If no such folder can be made, it is a temporary folder of this process.
    """
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "agentgym")
    for folder in (_CACHE, own):
        with suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            is_read = os.geteuid() != 0 or readable_by_anyone(folder)
            if folder.stat().st_uid == os.getuid() and is_read:
                return folder
    scratch = scratch_folder("python")
    folder = scratch.__enter__()
    atexit.register(scratch.__exit__, None, None, None)
    folder.chmod(0o755)
    return folder


def _copy(python: Path, stdlib: Path, draft: Path) -> None:
    """Copy the interpreter, its shared library and standard library to ``draft``."""
    prefix = python.parents[1]
    (draft / "bin").mkdir()
    shutil.copy(python, draft / "bin" / python.name)
    for name in {"python", "python3"} - {python.name}:
        (draft / "bin" / name).symlink_to(python.name)
    skipped = shutil.ignore_patterns(*_NOT_COPIED.split())
    shutil.copytree(stdlib, draft / stdlib.relative_to(prefix), ignore=skipped)
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, draft / "lib" / library.name, follow_symlinks=False)


def environment(home: PythonHome, tools: Iterable[Path] = ()) -> dict[str, str]:
    """Return the variables of executions, without secrets.

    ``tools`` come first in PATH.
    """
    env = {
        "PATH": ":".join(map(str, (home.bin, *tools, *_PROGRAMS))),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # Each thread's arena takes 64 MB of the limited address space.
        "MALLOC_ARENA_MAX": "2",
        # Otherwise OpenSSL and git read system files: these differ between machines,
        # or reading is refused, and then the program ends.
        "OPENSSL_CONF": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    libraries = home.python.parents[1] / "lib"
    if any(libraries.glob("libpython*.so*")):
        env["LD_LIBRARY_PATH"] = str(libraries)
    return env


def command_line(
    settings: ZygoteSettings,
    home: PythonHome,
    guest: Path,
    control: int,
    mounts: list[str],
) -> list[str]:
    """Return the command that starts a zygote."""
    around: list[str] = []
    if settings.rung.bubblewrap:
        around = [*_bubblewrap(settings, home.python, guest, mounts), "--"]
        guest = _GUEST_INSIDE
    python = str(home.bin / home.python.name)
    interpreter = [python, "-s", "-P", "-B", "-c", _BOOTSTRAP]
    return [*around, *interpreter, str(guest), str(control), settings.encode()]


def _bubblewrap(
    settings: ZygoteSettings, python: Path, guest: Path, mounts: list[str]
) -> list[str]:
    options = [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--die-with-parent", "--new-session"),
        *("--as-pid-1", "--cap-drop", "ALL"),
    ]
    capabilities: tuple[str, ...] = _CAPABILITIES
    if settings.identity is None:
        capabilities = ("SYS_ADMIN",)
        options += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for name in capabilities:
        options += ["--cap-add", f"CAP_{name}"]
    for folder in SYSTEM:
        if os.path.islink(folder):
            options += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            options += ["--ro-bind", folder, folder]
    options += ["--perms", "0755", "--dir", "/etc"]
    for file in SYSTEM_FILES:
        options += ["--ro-bind-try", file, file]
    if not (prefix := python.parents[1]).is_relative_to("/usr"):
        options += shown(prefix, prefix)
    options += ["--proc", "/proc", "--tmpfs", "/dev", "--dir", "/dev/shm"]
    for device in DEVICES:
        options += ["--dev-bind", device, device]
    # /dev/full reads like /dev/zero, but cannot be mapped into memory.
    options += ["--dev-bind", "/dev/full", ZERO]
    options += ["--symlink", "/proc/self/fd", "/dev/fd"]
    options += ["--dir", "/workspace", "--dir", "/tmp", *shown(guest, _GUEST_INSIDE)]
    options += mounts
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def shown(tree: Path, place: Path) -> list[str]:
    """Return the bubblewrap options that mount ``tree`` read-only at ``place``."""
    options = []
    for parent in reversed(place.parents[:-1]):
        options += ["--perms", "0755", "--dir", str(parent)]
    return [*options, "--ro-bind", str(tree), str(place)]
