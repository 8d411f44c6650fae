"""Compile the allowed system calls to a seccomp filter, on the host.

The process in the sandbox only installs the compiled bytes.

The ``strict`` filter is for a process that keeps the caller's user id. Such a process
may not start processes or send signals to other processes. Its system calls that change
file metadata report success but change nothing, because Landlock cannot restrict them.
"""

import errno
import functools
import platform
import struct

from agentgym.sandbox.guest.confine import OWN_PID
from agentgym.sandbox.syscalls import ALLOWED, FCNTLS, IOCTLS, LAST_CLASSIC, PRCTLS

_IGNORED_WHEN_STRICT = """
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat
utimensat
"""
_ATTRIBUTES = """
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr
fsetxattr removexattr lremovexattr fremovexattr
"""
_REFUSED_WHEN_STRICT = """
fork vfork tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open setpriority
"""
_SIGNALLING = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open"
_OF_ITSELF = """
prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr
"""
"""System calls that a process may make only for itself: the first argument, a process
id, must be 0."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_CLONE_NAMESPACES, _CLONE_THREAD = 0x7E020000, 0x10000
_AF_UNIX, _SOCK_TYPE_MASK = 1, 0xF
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5  # A pair of these can only reach itself.
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED and MAP_ANONYMOUS


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _fail(number: int) -> bytes:
    """Return filter code that skips the system call and reports the errno ``number``.

    0 reports success.
    """
    return _op(_RETURN, 0x00050000 | number)


_KILL_PROCESS = _op(_RETURN, 0x80000000)
_ALLOW = _op(_RETURN, 0x7FFF0000)
_REFUSE = _fail(errno.EPERM)
_UNKNOWN = _fail(errno.ENOSYS)


def _argument(index: int) -> bytes:
    """Return filter code that loads the low 32 bits of a system call's argument.

    ``index`` is the argument's number, from 0 on.
    """
    return _op(_LOAD, 16 + 8 * index)


def _if_one_of(index: int, values: tuple[int, ...], hit: bytes, miss: bytes) -> bytes:
    """Return filter code that runs ``hit`` if an argument is in ``values``.

    Otherwise it runs ``miss``. ``index`` is the argument's number, from 0 on.
    """
    tests = [_op(_EQUAL, value, len(values) - n) for n, value in enumerate(values)]
    return _argument(index) + b"".join(tests) + miss + hit


@functools.cache
def build_filter(
    *, strict: bool, shared_memory: bool, mounted: bool, machine: str = ""
) -> bytes:
    """Compile the seccomp filter of a process in the sandbox.

    Args:
        strict: Whether the process keeps the caller's own user id.
        shared_memory: Whether processes may share anonymous memory. Do not allow this
            if memory is measured as the sum of the processes' sizes, since this sum
            does not contain unmapped shared memory.
        mounted: Whether the process sees only the sandbox's own folders. If not, the
            filter refuses calls for extended attributes, because Landlock does not
            restrict them. It also refuses ``fallocate``, which reserves disk space
            without writing, because only written bytes are counted.
        machine: ``x86_64`` or ``aarch64``; this machine by default.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(f"no seccomp table for the architecture {machine!r}")
    column, audit = _ARCHITECTURES[machine]
    rows = [row.split() for row in ALLOWED.split(",")]
    numbers = {row[0]: int(row[1 + column]) for row in rows}
    rules = _rules(shared_memory=shared_memory)
    if not mounted:
        rules |= dict.fromkeys(_ATTRIBUTES.split(), _fail(errno.EOPNOTSUPP))
        rules["fallocate"] = _fail(errno.EOPNOTSUPP)  # C libraries then write zeros.
    if strict:
        rules |= _strict_rules()
    program = [_op(_LOAD, 4), _op(_EQUAL, audit, 1, 0), _KILL_PROCESS, _op(_LOAD, 0)]
    for name, body in rules.items():
        if numbers[name] >= 0:
            program += [_op(_EQUAL, numbers[name], 0, len(body) // 8), body]
    return b"".join([*program, *_verdicts(set(numbers.values()))])


def _verdicts(allowed: set[int]) -> list[bytes]:
    """Return the filter's last part: allow system calls with numbers in ``allowed``.

    All other calls are refused.
    """

    def verdict(number: int) -> bytes:
        if number in allowed:
            return _ALLOW
        return _REFUSE if number <= LAST_CLASSIC else _UNKNOWN

    end = []
    for number in range(max(*allowed, LAST_CLASSIC) + 1):
        if verdict(number) != verdict(number + 1):
            end += [_op(_AT_LEAST, number + 1, 1, 0), verdict(number)]
    return [*end, _UNKNOWN]


def _rules(*, shared_memory: bool) -> dict[str, bytes]:
    """Return filter code for system calls whose arguments are checked.

    The keys are the names of the calls.
    """
    stream_pair = [
        _argument(0),
        _op(_EQUAL, _AF_UNIX, 0, 5),
        _argument(1),
        _op(_AND, _SOCK_TYPE_MASK),
        _op(_EQUAL, _SOCK_STREAM, 1, 0),
        _op(_EQUAL, _SOCK_SEQPACKET, 0, 1),
        _ALLOW,
        _REFUSE,
    ]
    no_namespace = [_argument(0), _op(_ANY_BIT, _CLONE_NAMESPACES, 0, 1), _REFUSE]
    not_init = _if_one_of(0, (1,), _REFUSE, _ALLOW)
    itself = _if_one_of(0, (0,), _ALLOW, _REFUSE)
    rules = {
        **dict.fromkeys(_SIGNALLING.split(), not_init),
        **dict.fromkeys(_OF_ITSELF.split(), itself),
        "setpriority": _argument(0)
        + _op(_EQUAL, 0, 1, 0)
        + _REFUSE
        # Allowed for a process, not for a group or a user; and only for the caller.
        + _if_one_of(1, (0,), _ALLOW, _REFUSE),
        "clone": b"".join([*no_namespace, _ALLOW]),
        "clone3": _UNKNOWN,  # Its flags are not visible; C libraries then use `clone`.
        "socketpair": b"".join(stream_pair),
        "ioctl": _if_one_of(1, IOCTLS, _ALLOW, _fail(errno.ENOTTY)),
        "fcntl": _if_one_of(1, FCNTLS, _ALLOW, _fail(errno.EINVAL)),
        "prctl": _if_one_of(0, PRCTLS, _ALLOW, _fail(errno.EINVAL)),
    }
    if not shared_memory:
        both = _op(_AND, _SHARED_ANONYMOUS) + _op(_EQUAL, _SHARED_ANONYMOUS, 0, 1)
        rules["mmap"] = _argument(3) + both + _REFUSE + _ALLOW
    return rules


def _strict_rules() -> dict[str, bytes]:
    """Return the filter code that only the strict filter has.

    The keys are the names of system calls.
    """
    itself = _if_one_of(0, (0, OWN_PID), _ALLOW, _REFUSE)
    thread = [_argument(0), _op(_ANY_BIT, _CLONE_NAMESPACES, 1, 0)]
    thread += [_op(_ANY_BIT, _CLONE_THREAD, 1, 0), _REFUSE, _ALLOW]
    return {
        **dict.fromkeys(_IGNORED_WHEN_STRICT.split(), _fail(0)),
        **dict.fromkeys(_REFUSED_WHEN_STRICT.split(), _REFUSE),
        "kill": itself,
        "tgkill": itself,
        "clone": b"".join(thread),
    }
