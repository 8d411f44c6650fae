"""Remove all rights that an execution does not need, in the only safe order.

If a step fails, :func:`confine` raises, and the process does not run the program.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys

from . import landlock, libc
from .settings import DEVICES, SYSTEM, SYSTEM_FILES, ZERO, ZygoteSettings

_MOST_SIGNALS = 1024
"""Maximum number of timers and queued signals. If executions have the caller's user id,
the kernel counts the caller's timers and signals too."""
OWN_PID = 0x7FFFFFFE
"""Placeholder in a seccomp filter for the id of the filtered process, which
:func:`confine` inserts. The number is too large for a process id."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1


def confine(
    settings: ZygoteSettings, timeout_s: float, writable: tuple[str, ...]
) -> None:
    """Set limits, change the user id, apply Landlock and seccomp."""
    rung = settings.rung
    _set_limits(settings, timeout_s)
    if settings.identity is not None:
        become(settings.identity)
    if settings.identity is not None or rung.bubblewrap:
        libc.drop_capabilities()
    if rung.isolates:
        libc.prctl(libc.PR_SET_DUMPABLE, 1)  # Otherwise /proc/self is not accessible.
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if rung.landlock:
        imported = (sys.prefix, sys.base_prefix, *sys.path, os.path.dirname(__file__))
        readable = (*SYSTEM, *SYSTEM_FILES, ZERO, *imported, *settings.readable)
        landlock.restrict(readable=readable, writable=writable, devices=DEVICES)
    if rung.isolates:
        _install_filter(bytes.fromhex(settings.program))


def _install_filter(program: bytes) -> None:
    """Apply a compiled seccomp filter permanently to the calling process."""
    own = struct.pack("=I", os.getpid())
    program = program.replace(struct.pack("=I", OWN_PID), own)
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    number = _SECCOMP[platform.machine()]
    libc.syscall(number, _SET_MODE_FILTER, _FLAG_TSYNC, fprog)


def become(identity: int) -> None:
    """Change this process permanently to the user and group id ``identity``."""
    if identity <= 0:
        raise PermissionError(f"{identity} is not an unprivileged user id")
    os.setgroups([])
    os.setresgid(identity, identity, identity)
    os.setresuid(identity, identity, identity)
    if os.getresuid() != (identity,) * 3 or os.getresgid() != (identity,) * 3:
        raise PermissionError(f"could not become user {identity}")


def _set_limits(settings: ZygoteSettings, timeout_s: float) -> None:
    """Set soft and hard resource limits; current hard limits are not raised."""
    limits = settings.limits
    values = {
        resource.RLIMIT_AS: limits.memory_mb << 20,
        resource.RLIMIT_FSIZE: limits.file_mb << 20,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CPU: int(timeout_s) + 2,
        resource.RLIMIT_CORE: 0,
    }
    if settings.rung.counts_processes:
        values[resource.RLIMIT_NPROC] = limits.processes
    if sys.platform == "linux":  # All processes of a user share this count.
        values[resource.RLIMIT_SIGPENDING] = _MOST_SIGNALS
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))
