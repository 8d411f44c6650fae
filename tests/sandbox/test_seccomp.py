"""The filter's decisions, evaluated for both architectures without a kernel."""

import errno
import struct

import pytest

from agentgym.sandbox.guest.seccomp import build_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050000 | errno.EPERM
UNKNOWN = 0x00050000 | errno.ENOSYS
PRETEND = 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


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


@pytest.mark.parametrize(
    ("machine", "calls"),
    [
        ("x86_64", {"read": 0, "socket": 41, "pair": 53, "clone": 56, "kill": 62}),
        (
            "aarch64",
            {"read": 63, "socket": 198, "pair": 199, "clone": 220, "kill": 129},
        ),
    ],
)
def test_decisions(machine: str, calls: dict[str, int]) -> None:
    audit = AUDIT[machine]
    loose = build_filter(strict=False, machine=machine)
    strict = build_filter(strict=True, pid=77, machine=machine)
    for program in (loose, strict):
        assert decide(program, audit, calls["read"]) == ALLOW
        assert decide(program, audit, calls["socket"], 2, 1) == REFUSE
        assert decide(program, audit, calls["pair"], 1, 1 | 0o2000000) == ALLOW
        assert decide(program, audit, calls["pair"], 1, 2) == REFUSE
        assert decide(program, audit, calls["pair"], 2, 1) == REFUSE
        assert decide(program, audit, calls["clone"], 0x3D0F00) == ALLOW
        assert decide(program, audit, calls["clone"], 0x10000011) == REFUSE
        assert decide(program, audit, 435) == UNKNOWN
        assert decide(program, audit, 468) == UNKNOWN
        assert decide(program, audit, 0x40000000 | calls["read"]) == UNKNOWN
        assert decide(program, 0x40000003, calls["read"]) == KILL
    assert decide(loose, audit, calls["clone"], 17) == ALLOW
    assert decide(strict, audit, calls["clone"], 17) == REFUSE
    assert decide(loose, audit, calls["kill"], 1, 9) == ALLOW
    assert decide(strict, audit, calls["kill"], 1, 9) == REFUSE
    assert decide(strict, audit, calls["kill"], -1, 9) == REFUSE
    assert decide(strict, audit, calls["kill"], 77, 6) == ALLOW
    chmod = {"x86_64": 90, "aarch64": 53}[machine]
    assert decide(strict, audit, chmod) == PRETEND
    assert decide(loose, audit, chmod) == ALLOW
    fcntl = {"x86_64": 72, "aarch64": 25}[machine]
    assert decide(strict, audit, fcntl, 0, 8) == REFUSE
    assert decide(strict, audit, fcntl, 0, 1) == ALLOW


def test_unknown_architecture() -> None:
    with pytest.raises(OSError, match="no seccomp table"):
        build_filter(strict=False, machine="riscv64")
