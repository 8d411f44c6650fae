"""Prepare the start of a zygote (an interpreter that forks one process per execution).

An interpreter in a private folder such as ``/root`` is mounted by bubblewrap. Without
bubblewrap, executions use a copy, since their user id cannot read it there.
"""

import atexit
import functools
import grp
import hashlib
import os
import pwd
import shutil
import socket
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
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
from agentgym.sandbox.packages import INSIDE, PythonHome

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
