"""Start a zygote under a rung: command line, environment, configuration."""

import json
import os
import shutil
import sys
from pathlib import Path

from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.guest.confine import DEVICES
from agentgym.sandbox.guest.zygote import PRELOAD
from agentgym.sandbox.rungs import Rung
from agentgym.sandbox.runtime import Runtime

GUEST = Path(__file__).with_name("guest")
_GUEST_INSIDE = "/run/agentgym/guest"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
_CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "KILL")
_BOOTSTRAP = """\
import sys, types
guest = types.ModuleType("_agentgym_guest")
guest.__path__ = [sys.argv[1]]
sys.modules["_agentgym_guest"] = guest
from _agentgym_guest.zygote import main
main(int(sys.argv[2]), sys.argv[3])
"""


def environment(config: SandboxConfig, runtime: Runtime) -> dict[str, str]:
    """Return the whole environment of the zygote and of executions."""
    path = f"{runtime.executable.parent}:/usr/local/bin:/usr/bin:/bin"
    env = {
        "PATH": path,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if any((runtime.prefix / "lib").glob("libpython*.so*")):
        env["LD_LIBRARY_PATH"] = str(runtime.prefix / "lib")
    return {**env, **dict(config.env)}


def guest_config(
    rung: Rung,
    config: SandboxConfig,
    runtime: Runtime,
    *,
    identity: int | None,
    scratch: Path | None,
) -> str:
    """Return the JSON that the zygote is started with.

    Args:
        rung: How to isolate.
        config: What the user asked for.
        runtime: The interpreter.
        identity: User id of this zygote's executions, if the rung changes it.
        scratch: Folder for workspaces, where they cannot be mounted.
    """
    readable = [*_SYSTEM, *_SYSTEM_FILES, str(runtime.prefix)]
    return json.dumps(
        {
            "identity": identity if rung.own_identity else None,
            "drop_capabilities": rung.bubblewrap and not rung.own_identity,
            "landlock": rung.landlock,
            "seccomp": rung.seccomp,
            "strict": rung.strict,
            "sweep": rung.sweep,
            "readable": readable + [str(path) for path in config.python_path],
            "scratch": None if scratch is None else str(scratch),
            "tmpfs_mb": config.limits.file_mb,
            "path": [str(path) for path in config.python_path],
            "preload": [*PRELOAD, *config.preload],
        }
    )


def command_line(
    rung: Rung,
    config: SandboxConfig,
    runtime: Runtime,
    control: int,
    guest: str,
    folder: Path = GUEST,
) -> list[str]:
    """Return the command that starts a zygote.

    Args:
        rung: How to isolate.
        config: What the user asked for.
        runtime: The interpreter.
        control: Descriptor of the zygote's end of the control socket.
        guest: JSON of the guest's configuration.
        folder: Where the guest's modules are on the host.
    """
    inside = _GUEST_INSIDE if rung.bubblewrap else str(folder)
    python = [str(runtime.executable), "-S", "-s", "-P", "-B", "-c", _BOOTSTRAP]
    command = [*python, inside, str(control), guest]
    if not rung.bubblewrap:
        return command
    return [*_bubblewrap(rung, config, runtime, folder), "--", *command]


def _bubblewrap(
    rung: Rung, config: SandboxConfig, runtime: Runtime, folder: Path
) -> list[str]:
    """Return bubblewrap and its options."""
    options = [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--die-with-parent", "--new-session"),
        *("--as-pid-1", "--cap-drop", "ALL"),
    ]
    capabilities = list(_CAPABILITIES)
    if rung.user_namespace:
        capabilities = ["SYS_ADMIN"]
        options += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for name in capabilities:
        options += ["--cap-add", f"CAP_{name}"]
    for path in _SYSTEM:
        options += _show(Path(path))
    for path in _SYSTEM_FILES:
        options += ["--ro-bind-try", path, path]
    for tree in (runtime.prefix, *config.python_path):
        if not tree.is_relative_to("/usr"):
            options += [*_parents(tree), "--ro-bind", str(tree), str(tree)]
    options += ["--proc", "/proc", "--tmpfs", "/dev", "--dir", "/dev/shm"]
    for device in DEVICES:
        options += ["--dev-bind", device, device]
    options += ["--symlink", "/proc/self/fd", "/dev/fd"]
    options += ["--dir", "/workspace", "--dir", "/tmp"]
    options += _parents(Path(_GUEST_INSIDE))
    options += ["--ro-bind", str(folder), _GUEST_INSIDE]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def _parents(path: Path) -> list[str]:
    """Return the options that make the folders above a mount point passable."""
    options = []
    for parent in reversed(path.parents[:-1]):
        options += ["--perms", "0755", "--dir", str(parent)]
    return options


def _show(path: Path) -> list[str]:
    """Return the options that show a system folder as it is: a link or a tree."""
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    if path.is_dir():
        return ["--ro-bind", str(path), str(path)]
    return []


def supported_platform() -> bool:
    """Return whether any rung but ``unsafe`` can exist here."""
    return sys.platform == "linux"
