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
from collections.abc import Iterable
from ctypes import c_size_t, c_uint32

from . import libc
from .libc import syscall
from .settings import DEVICES, SYSTEM, SYSTEM_FILES, ZERO, ZygoteSettings

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def _restrict(
    *, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]
) -> None:
    """Limit the calling thread to these paths, with Landlock.

    ``PR_SET_NO_NEW_PRIVS`` must be set. ``stat`` and ``chmod`` are not covered. Files
    below ``readable`` may also be executed.
    """
    try:
        abi = syscall(_CREATE_RULESET, None, c_size_t(0), c_uint32(_VERSION_FLAG))
    except OSError as error:
        raise OSError("this kernel has no Landlock") from error
    later = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    files = _REFER - 1 + sum(right for since, right in later if abi >= since)
    # The network from ABI 4 on; signals and sockets to others from ABI 6 on.
    handled = [files, *(0b11 for since in (4, 6) if abi >= since)]
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    size = c_size_t(len(attributes))
    ruleset = syscall(_CREATE_RULESET, attributes, size, c_uint32(0))
    try:
        for path in filter(os.path.exists, readable):
            _allow(ruleset, path, _READ)
        for path in filter(os.path.exists, devices):
            _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
        for path in writable:
            _allow(ruleset, path, files & ~_IOCTL_DEV)
        syscall(_RESTRICT_SELF, ruleset, c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule to a Landlock ruleset: allow ``rights`` on a path."""
    # Only some rights apply to files.
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _FILE_ONLY
        rule = struct.pack("=Qi", rights, parent)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, c_uint32(0))
    finally:
        os.close(parent)


# Maximum number of timers and queued signals. If executions have the caller's user id,
# the kernel counts the caller's timers and signals too.
_MOST_SIGNALS = 1024
# Placeholder in a seccomp filter for the id of the filtered process, which
# `confine` inserts. The number is too large for a process id.
OWN_PID = 0x7FFFFFFE
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
        _restrict(readable=readable, writable=writable, devices=DEVICES)
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
