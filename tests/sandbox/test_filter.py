"""The filter's decisions, evaluated for both architectures without a kernel."""

import errno
import struct

import pytest

from agentgym.sandbox.filter import build_filter
from agentgym.sandbox.guest.confine import OWN_PID

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050000 | errno.EPERM
UNKNOWN = 0x00050000 | errno.ENOSYS
PRETEND = 0x00050000
INVALID = 0x00050000 | errno.EINVAL
NO_TERMINAL = 0x00050000 | errno.ENOTTY
UNSUPPORTED = 0x00050000 | errno.EOPNOTSUPP
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PID = struct.pack("=I", OWN_PID), struct.pack("=I", 77)


def decide(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """Interpret a filter program over one system call."""
    words = [argument & (2**64 - 1) for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=IIQ6Q", number, audit, 0, *words)
    at = accumulator = 0
    while True:
        code, if_true, if_false, k = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif code == 0x54:
            accumulator &= k
        elif code == 0x06:
            return int(k)
        else:
            holds = {
                0x15: accumulator == k,
                0x35: accumulator >= k,
                0x45: bool(accumulator & k),
            }[code]
            at += if_true if holds else if_false


_CALLS = {
    "x86_64": {
        "read": 0,
        "socket": 41,
        "pair": 53,
        "clone": 56,
        "kill": 62,
        "chmod": 90,
        "fcntl": 72,
        "ioctl": 16,
        "mmap": 9,
        "prlimit": 302,
        "priority": 141,
        "aio": 206,
        "inotify": 294,
        "ptrace": 101,
        "memfd": 319,
        "affinity": 203,
        "prctl": 157,
        "pidfd": 434,
        "vmsplice": 278,
        "fork": 57,
        "fallocate": 285,
        "getxattr": 191,
        "setxattr": 188,
    },
    "aarch64": {
        "read": 63,
        "socket": 198,
        "pair": 199,
        "clone": 220,
        "kill": 129,
        "chmod": 53,
        "fcntl": 25,
        "ioctl": 29,
        "mmap": 222,
        "prlimit": 261,
        "priority": 140,
        "aio": 0,
        "inotify": 26,
        "ptrace": 117,
        "memfd": 279,
        "affinity": 122,
        "prctl": 167,
        "pidfd": 434,
        "vmsplice": 75,
        "fork": 220,
        "fallocate": 47,
        "getxattr": 8,
        "setxattr": 5,
    },
}
_COUNTED = {"strict": False, "shared_memory": True, "mounted": True}
_UNCOUNTED = _COUNTED | {"shared_memory": False}
_STRICT = {"strict": True, "shared_memory": True, "mounted": False}


@pytest.mark.parametrize("options", [_STRICT, _COUNTED, _UNCOUNTED])
@pytest.mark.parametrize("machine", list(_CALLS))
def test_decisions(machine: str, options: dict[str, bool]) -> None:
    audit, calls = AUDIT[machine], _CALLS[machine]
    program = build_filter(**options, machine=machine).replace(*_PID)

    def says(name: str, *arguments: int) -> int:
        return decide(program, audit, calls[name], *arguments)

    assert says("read") == ALLOW
    for name in ("socket", "aio", "inotify", "ptrace", "memfd", "vmsplice"):
        assert says(name, 2, 1) == REFUSE, name
    assert says("pair", 1, 1 | 0o2000000) == ALLOW
    assert says("pair", 1, 2) == REFUSE
    assert says("pair", 2, 1) == REFUSE
    assert says("clone", 0x3D0F00) == ALLOW
    assert says("clone", 0x10000011) == REFUSE
    for number in (435, 451, 468, 10_000, 0x40000000 | calls["read"]):
        assert decide(program, audit, number) == UNKNOWN, number
    assert decide(program, 0x40000003, calls["read"]) == KILL
    for name in ("prlimit", "affinity"):
        assert says(name, 0) == ALLOW
        assert says(name, 1) == REFUSE
        assert says(name, 78) == REFUSE
    assert says("kill", 1, 9) == REFUSE
    assert says("kill", 77, 6) == ALLOW
    assert says("pidfd", 1) == REFUSE
    assert says("priority", 2, 0, 19) == REFUSE
    assert says("priority", 0, 1, 19) == REFUSE
    assert says("fcntl", 0, 1) == ALLOW
    for command in (8, 10, 15, 1024, 1026):
        assert says("fcntl", 0, command) == INVALID, command
    assert says("ioctl", 0, 0x541B) == ALLOW
    for command in (0x8901, 0x8902, 0x5452, 0x5412):
        assert says("ioctl", 0, command) == NO_TERMINAL, hex(command)
    assert says("prctl", 38) == ALLOW
    assert says("prctl", 1) == INVALID
    assert says("mmap", 0, 4096, 3, 0x22) == ALLOW
    assert says("mmap", 0, 4096, 3, 0x01) == ALLOW


@pytest.mark.parametrize("machine", list(_CALLS))
def test_decisions_that_differ(machine: str) -> None:
    def says(options: dict[str, bool], name: str, *arguments: int) -> int:
        program = build_filter(**options, machine=machine).replace(*_PID)
        return decide(program, AUDIT[machine], _CALLS[machine][name], *arguments)

    assert says(_COUNTED, "fork", 17) == ALLOW
    assert says(_STRICT, "fork", 17) == REFUSE
    assert says(_COUNTED, "fallocate") == ALLOW
    assert says(_STRICT, "fallocate") == UNSUPPORTED
    for name in ("getxattr", "setxattr"):
        assert says(_COUNTED, name) == ALLOW
        assert says(_STRICT, name) == UNSUPPORTED
        assert says(_COUNTED | {"mounted": False}, name) == UNSUPPORTED
    assert says(_COUNTED, "chmod") == ALLOW
    assert says(_STRICT, "chmod") == PRETEND
    assert says(_COUNTED, "kill", 78, 9) == ALLOW
    assert says(_STRICT, "kill", 78, 9) == REFUSE
    assert says(_STRICT, "kill", -1, 9) == REFUSE
    assert says(_COUNTED, "priority", 0, 0, 19) == ALLOW
    assert says(_COUNTED, "mmap", 0, 4096, 3, 0x21) == ALLOW
    assert says(_UNCOUNTED, "mmap", 0, 4096, 3, 0x21) == REFUSE
    assert says(_UNCOUNTED, "mmap", 0, 4096, 3, 0x40021) == REFUSE


def test_unknown_architecture() -> None:
    with pytest.raises(OSError, match="no seccomp table"):
        build_filter(**_COUNTED, machine="riscv64")
