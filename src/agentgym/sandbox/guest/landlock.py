"""Landlock: limit the paths that the calling process may read and write.

Landlock (Linux 5.13+) needs no privileges. It covers opening, creating, renaming and
removing files. From ABI 4 on it covers TCP bind and connect, and from ABI 6 on signals
and abstract sockets to other processes. It does not cover ``stat``, ``chmod`` and other
changes of metadata.
"""

import os
import struct
from collections.abc import Iterable
from ctypes import c_size_t, c_uint32

from .libc import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def restrict(
    *, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]
) -> None:
    """Limit the calling thread to these paths.

    ``PR_SET_NO_NEW_PRIVS`` must be set. Files below ``readable`` may also be executed.
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
