"""Call functions of libc that Python's standard library does not offer."""

import ctypes
import os
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_CAPABILITY_VERSION_3 = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: Any) -> int:
    """Make the system call ``number``; raise OSError if it fails."""
    return _check(_LIBC.syscall(number, *arguments), f"system call {number}")


def prctl(option: int, *arguments: int) -> int:
    """Call ``prctl(2)``; raise OSError if it fails. Missing arguments are zero."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return _check(_LIBC.prctl(option, *padded), f"prctl {option}")


def mount_tmpfs(target: str, options: str) -> None:
    """Mount a new tmpfs on ``target``; set-uid files and devices do not work in it."""
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    result = _LIBC.mount(b"tmpfs", target.encode(), b"tmpfs", flags, options.encode())
    _check(result, f"mount tmpfs on {target}")


def unmount(target: str) -> None:
    """Unmount ``target`` at once, even if it is in use."""
    _check(_LIBC.umount2(target.encode(), _MNT_DETACH), f"unmount {target}")


def drop_capabilities() -> None:
    """Drop all effective, permitted, inheritable and ambient capabilities."""
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    _check(_LIBC.capset(header, sets), "capset")
    _check(_LIBC.capget(header, sets), "capget")
    if any(sets):
        raise PermissionError("capabilities are left after dropping all of them")


def _check(result: int, what: str) -> int:
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result
