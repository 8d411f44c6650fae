"""A seccomp filter, assembled by hand, for x86_64 and aarch64.

What no program under test needs is refused with ``EPERM``: sockets (except connected
stream pairs, which event loops use), namespaces, mounts, tracing, keyrings, System V
IPC, kernel modules, clocks, io_uring and more. System calls newer than the table are
refused with ``ENOSYS``, and so is a foreign ABI.

``strict`` is for a process that keeps the caller's own user id: it may start no other
process, signal none but itself, and changes of file metadata are ignored (they report
success), because Landlock does not govern them.
"""

import ctypes
import errno
import platform
import struct

from .libc import syscall

# Name, number on x86_64, number on aarch64; -1 where the call does not exist.
_DENIED = """
socket 41 198, connect 42 203, bind 49 200, listen 50 201, accept 43 202,
accept4 288 242, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271,
process_madvise 440 440, pidfd_getfd 438 438, kcmp 312 272, mount 165 40,
umount2 166 39, pivot_root 155 41, chroot 161 51, mount_setattr 442 442,
open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431,
fsmount 432 432, fspick 433 433, open_tree_attr 467 467, unshare 272 97,
setns 308 268, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282,
io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
keyctl 250 219, add_key 248 217, request_key 249 218, shmget 29 194, shmat 30 196,
shmctl 31 195, semget 64 190, semctl 66 191, semop 65 193, semtimedop 220 192,
msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180,
mq_unlink 241 181, memfd_create 319 279, memfd_secret 447 447,
open_by_handle_at 304 265, name_to_handle_at 303 264, kexec_load 246 104,
kexec_file_load 320 294, init_module 175 105, finit_module 313 273,
delete_module 176 106, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89,
quotactl 179 60, quotactl_fd 443 443, syslog 103 116, settimeofday 164 170,
clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, sethostname 170 161,
setdomainname 171 162, iopl 172 -1, ioperm 173 -1, modify_ldt 154 -1,
personality 135 92, vhangup 153 58, fanotify_init 300 262, lookup_dcookie 212 18,
move_pages 279 239, migrate_pages 256 238, uselib 134 -1, sysctl 156 -1
"""
_IGNORED_WHEN_STRICT = """
chmod 90 -1, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -1,
fchown 93 55, lchown 94 -1, fchownat 260 54, utime 132 -1, utimes 235 -1,
futimesat 261 -1, utimensat 280 88, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7,
setxattrat 463 463, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16,
removexattrat 466 466
"""
_DENIED_WHEN_STRICT = """
fork 57 -1, vfork 58 -1, tkill 200 130, rt_sigqueueinfo 129 138,
rt_tgsigqueueinfo 297 240, pidfd_open 434 434, pidfd_send_signal 424 424,
setpriority 141 140, ioprio_set 251 30
"""
_OWN_PROCESS_ONLY_WHEN_STRICT = """
kill 62 129, tgkill 234 131, prlimit64 302 261, sched_setaffinity 203 122,
sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274
"""
_LAST_KNOWN_CALL = 467
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_SOCKETPAIR, _CLONE, _CLONE3 = (53, 199), (56, 220), 435
_PRCTL, _FCNTL = (157, 167), (72, 25)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_KILL_PROCESS = 0x80000000
_FAIL = 0x00050000  # With this errno; 0 pretends success.
_CLONE_NAMESPACES, _CLONE_THREAD = 0x7E020000, 0x10000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_PR_SET_PDEATHSIG = 1
_SIGNALLING_FCNTL = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_SECCOMP, _SET_MODE_FILTER, _FLAG_TSYNC = (317, 277), 1, 1


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


_ALLOW = _op(_RETURN, 0x7FFF0000)
_REFUSE = _op(_RETURN, _FAIL | errno.EPERM)
_UNKNOWN = _op(_RETURN, _FAIL | errno.ENOSYS)
_PRETEND = _op(_RETURN, _FAIL)


def _argument(index: int) -> bytes:
    """Load the low half of an argument (both architectures are little-endian)."""
    return _op(_LOAD, 16 + 8 * index)


def _when(number: int, *body: bytes) -> list[bytes]:
    """Run ``body``, which must end in a verdict, for one system call."""
    return [_op(_EQUAL, number, 0, len(body)), *body]


def _each(table: str, column: int, *body: bytes) -> list[bytes]:
    """Do the same for the system calls of a table, on one architecture."""
    numbers = [int(row.split()[1 + column]) for row in table.split(",")]
    return [op for number in numbers if number >= 0 for op in _when(number, *body)]


def build_filter(*, strict: bool, pid: int = 0, machine: str = "") -> bytes:
    """Assemble the filter program.

    Args:
        strict: Whether the process keeps the caller's own user id.
        pid: The process that a strict filter lets signal itself.
        machine: ``x86_64`` or ``aarch64``; this machine by default.

    Raises:
        OSError: There is no table for this architecture.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(f"no seccomp table for the architecture {machine!r}")
    column, audit = _ARCHITECTURES[machine]
    program = [
        _op(_LOAD, 4),
        _op(_EQUAL, audit, 1, 0),
        _op(_RETURN, _KILL_PROCESS),
        _op(_LOAD, 0),
        _op(_AT_LEAST, _LAST_KNOWN_CALL + 1, 0, 1),
        _UNKNOWN,
        *_when(_CLONE3, _UNKNOWN),
    ]
    if strict:
        program += _strict_rules(column, pid)
    threads_only = [_op(_ANY_BIT, _CLONE_THREAD, 1, 0), _REFUSE] if strict else []
    program += _when(
        _CLONE[column],
        _argument(0),
        _op(_ANY_BIT, _CLONE_NAMESPACES, 0, 1),
        _REFUSE,
        *threads_only,
        _ALLOW,
    )
    program += _when(
        _SOCKETPAIR[column],
        _argument(0),
        _op(_EQUAL, _AF_UNIX, 0, 4),
        _argument(1),
        _op(_AND, _SOCK_TYPE_MASK),
        _op(_EQUAL, _SOCK_STREAM, 0, 1),
        _ALLOW,
        _REFUSE,
    )
    deathsig = [_argument(0), _op(_EQUAL, _PR_SET_PDEATHSIG, 0, 1), _REFUSE, _ALLOW]
    program += _when(_PRCTL[column], *deathsig)
    program += _each(_DENIED, column, _REFUSE)
    return b"".join([*program, _ALLOW])


def _strict_rules(column: int, pid: int) -> list[bytes]:
    """Return the rules for a process that keeps the caller's own user id."""
    is_self = [_argument(0), _op(_EQUAL, 0, 2, 0), _op(_EQUAL, pid, 1, 0)]
    signalling = [_argument(1)]
    for command in _SIGNALLING_FCNTL:
        signalling += [_op(_EQUAL, command, 0, 1), _REFUSE]
    return [
        *_each(_IGNORED_WHEN_STRICT, column, _PRETEND),
        *_each(_DENIED_WHEN_STRICT, column, _REFUSE),
        *_each(_OWN_PROCESS_ONLY_WHEN_STRICT, column, *is_self, _REFUSE, _ALLOW),
        *_when(_FCNTL[column], *signalling, _ALLOW),
    ]


def install(program: bytes) -> None:
    """Apply a filter to the calling process, after ``PR_SET_NO_NEW_PRIVS``, for good.

    Raises:
        OSError: The kernel refused the filter.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    column, _ = _ARCHITECTURES[platform.machine()]
    syscall(_SECCOMP[column], _SET_MODE_FILTER, _FLAG_TSYNC, fprog)
