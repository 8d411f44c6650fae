"""Install a seccomp filter that the host compiled."""

import ctypes
import os
import platform
import struct

from .libc import syscall

OWN_PID = 0x7FFFFFFE
"""Placeholder in a filter for the id of the filtered process, which :func:`install`
inserts. The number is too large for a process id."""

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1


def install(program: bytes) -> None:
    """Apply a compiled filter permanently to the calling process.

    ``PR_SET_NO_NEW_PRIVS`` must be set before.

    Raises:
        OSError: The kernel refused the filter.
    """
    own = struct.pack("=I", os.getpid())
    program = program.replace(struct.pack("=I", OWN_PID), own)
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    number = _SECCOMP[platform.machine()]
    syscall(number, _SET_MODE_FILTER, _FLAG_TSYNC, fprog)
