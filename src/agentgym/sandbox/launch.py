"""What starting a zygote takes: a user id, an environment, a command line."""

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from agentgym.errors import SandboxError
from agentgym.sandbox.guest.settings import DEVICES, SYSTEM, SYSTEM_FILES, Settings

GUEST = Path(__file__).with_name("guest")
_GUEST_INSIDE = Path("/run/agentgym/guest")
_FIRST_IDENTITY = 60600  # Unassigned by Debian and by systemd: 60578-61183.
_IDENTITIES = 400
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
    """Reserve a user id, also a group id, across processes of the machine.

    ``RLIMIT_NPROC`` counts, and the sweep kills, every process of a user id; so no two
    zygotes may share one. A reservation is an abstract socket name: the kernel frees it
    when the socket is closed or its owner ends, however that happens.

    Raises:
        SandboxError: All of them are taken.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for identity in range(_FIRST_IDENTITY, _FIRST_IDENTITY + _IDENTITIES):
        with suppress(OSError):
            lock.bind(f"\0agentgym-sandbox-{identity}")
            return identity, lock
    lock.close()
    raise SandboxError(
        f"All {_IDENTITIES} sandbox user ids from {_FIRST_IDENTITY} on are in use: "
        "close other runs, or lower `concurrency`."
    )


def environment(python: Path) -> dict[str, str]:
    """Return the whole environment of the zygote and of executions.

    Untrusted code can read it: it holds no secret.
    """
    env = {
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    libraries = python.parents[1] / "lib"
    if any(libraries.glob("libpython*.so*")):
        env["LD_LIBRARY_PATH"] = str(libraries)
    return env


def command_line(
    settings: Settings, python: Path, guest: Path, control: int
) -> list[str]:
    """Return the command that starts a zygote.

    It is given the folder of its modules on the host and its end of the socket.
    """
    around: list[str] = []
    if settings.rung.bubblewrap:
        around = [*_bubblewrap(settings, python, guest), "--"]
        guest = _GUEST_INSIDE
    interpreter = [str(python), "-S", "-s", "-P", "-B", "-c", _BOOTSTRAP]
    return [*around, *interpreter, str(guest), str(control), settings.encode()]


def _bubblewrap(settings: Settings, python: Path, guest: Path) -> list[str]:
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
    for file in SYSTEM_FILES:
        options += ["--ro-bind-try", file, file]
    if not (prefix := python.parents[1]).is_relative_to("/usr"):
        options += _shown(prefix, prefix)
    options += ["--proc", "/proc", "--tmpfs", "/dev", "--dir", "/dev/shm"]
    for device in DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--symlink", "/proc/self/fd", "/dev/fd"]
    options += ["--dir", "/workspace", "--dir", "/tmp", *_shown(guest, _GUEST_INSIDE)]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def _shown(tree: Path, place: Path) -> list[str]:
    """Return the options that mount a tree, read-only, below passable folders."""
    options = []
    for parent in reversed(place.parents[:-1]):
        options += ["--perms", "0755", "--dir", str(parent)]
    return [*options, "--ro-bind", str(tree), str(place)]
