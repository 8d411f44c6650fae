"""A Landlock domain: which paths the calling process may read and write.

Landlock (Linux 5.13+) is unprivileged. It governs opening, creating, renaming and
removing files; since ABI 4 TCP bind and connect; since ABI 6 signals and abstract
sockets across the border of the domain. It does not govern ``stat``, ``chmod`` and
other changes of metadata.
"""

import ctypes
import os
import struct
from collections.abc import Iterable

from .libc import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = EXECUTE | READ_FILE | READ_DIR
_FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


def abi_version() -> int:
    """Return the kernel's Landlock ABI, 0 where there is none."""
    try:
        return syscall(
            _CREATE_RULESET,
            None,
            ctypes.c_size_t(0),
            ctypes.c_uint32(_VERSION_FLAG),
        )
    except OSError:
        return 0


def _handled_files(abi: int) -> int:
    """Return all file rights that this ABI knows."""
    rights = (1 << 13) - 1
    rights |= REFER if abi >= 2 else 0
    rights |= TRUNCATE if abi >= 3 else 0
    rights |= IOCTL_DEV if abi >= 5 else 0
    return rights


def restrict(
    *, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]
) -> None:
    """Confine the calling thread, for good, to the given paths.

    Set ``PR_SET_NO_NEW_PRIVS`` first.

    Args:
        readable: Trees that may be read and executed; absent ones are skipped.
        writable: Trees with every right.
        devices: Files that may be read and written.

    Raises:
        OSError: The kernel has no Landlock, or refused a rule.
    """
    abi = abi_version()
    if abi < 1:
        raise OSError("this kernel has no Landlock")
    files = _handled_files(abi)
    attributes = struct.pack("=Q", files)
    if abi >= 4:
        attributes += struct.pack("=Q", 0b11)
    if abi >= 6:
        attributes += struct.pack("=Q", 0b11)
    ruleset = syscall(
        _CREATE_RULESET,
        attributes,
        ctypes.c_size_t(len(attributes)),
        ctypes.c_uint32(0),
    )
    try:
        for path in readable:
            _allow(ruleset, path, _READ & files, required=False)
        for path in devices:
            _allow(ruleset, path, (READ_FILE | WRITE_FILE) & files, required=False)
        for path in writable:
            _allow(ruleset, path, files & ~IOCTL_DEV, required=True)
        syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, *, required: bool) -> None:
    """Add one rule; a file gets only the rights that files have."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        if required:
            raise
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_ONLY
        rule = struct.pack("=Qi", rights, parent)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0))
    finally:
        os.close(parent)
