"""The few libc calls that the standard library does not offer."""

import ctypes
import os
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
MS_NOSUID = 2
MS_NODEV = 4
MNT_DETACH = 2
_CAPABILITY_VERSION_3 = 0x20080522

LIBC = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Return ``result``, or raise the pending ``errno`` when it is negative."""
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    """Make one system call by number."""
    return check(LIBC.syscall(number, *arguments), f"system call {number}")


def prctl(option: int, *arguments: int) -> int:
    """Call ``prctl(2)``; missing arguments are zero."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return check(LIBC.prctl(option, *padded), f"prctl {option}")


def mount_tmpfs(target: str, options: str) -> None:
    """Mount a fresh tmpfs on ``target``, without set-uid files and devices."""
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    result = LIBC.mount(b"tmpfs", target.encode(), b"tmpfs", flags, options.encode())
    check(result, f"mount tmpfs on {target}")


def unmount(target: str) -> None:
    """Detach the mount on ``target`` at once, whatever still uses it."""
    check(LIBC.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def drop_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient capability sets.

    Raises:
        PermissionError: Some capability is still there afterwards.
    """
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    check(LIBC.capset(header, sets), "capset")
    check(LIBC.capget(header, sets), "capget")
    if any(sets):
        raise PermissionError("capabilities are left after dropping all of them")
