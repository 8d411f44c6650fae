"""Compile the allowed system calls to a seccomp filter, on the host.

The ``strict`` filter is for a process that keeps the caller's user id. Such a process
may not start or signal others. Its system calls that change file metadata report
success but change nothing, because Landlock cannot restrict them.
"""

import errno
import functools
import platform
import struct

from agentgym.sandbox.guest.confine import OWN_PID

# Name of each call, and its numbers on x86_64 and aarch64 (-1: missing).
ALLOWED = """
access 21 -1, alarm 37 -1, arch_prctl 158 -1, brk 12 214, capget 125 90, capset 126 91,
chdir 80 49, chmod 90 -1, chown 92 -1, clock_getres 229 114, clock_gettime 228 113,
clock_nanosleep 230 115, clone 56 220, clone3 435 435, close 3 57, close_range 436 436,
copy_file_range 326 285, creat 85 -1, dup 32 23, dup2 33 -1, dup3 292 24,
epoll_create 213 -1, epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22,
epoll_pwait2 441 441, epoll_wait 232 -1, eventfd 284 -1, eventfd2 290 19, execve 59 221,
execveat 322 281, exit 60 93, exit_group 231 94, faccessat 269 48, faccessat2 439 439,
fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52, fchmodat 268 53,
fchmodat2 452 452, fchown 93 55, fchownat 260 54, fcntl 72 25, fdatasync 75 83,
fgetxattr 193 10, flistxattr 196 13, flock 73 32, fork 57 -1, fremovexattr 199 16,
fsetxattr 190 7, fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futex 202 98,
futex_waitv 449 449, futimesat 261 -1, get_robust_list 274 100, get_thread_area 211 -1,
getcpu 309 168, getcwd 79 17, getdents 78 -1, getdents64 217 61, getegid 108 177,
geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102,
getpeername 52 205, getpgid 121 155, getpgrp 111 -1, getpid 39 172, getppid 110 173,
getpriority 140 141, getrandom 318 278, getresgid 120 150, getresuid 118 148,
getrlimit 97 163, getrusage 98 165, getsid 124 156, getsockname 51 204,
getsockopt 55 209, gettid 186 178, gettimeofday 96 169, getuid 102 174, getxattr 191 8,
ioctl 16 29, ioprio_get 252 31, kill 62 129, landlock_add_rule 445 445,
landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lchown 94 -1,
lgetxattr 192 9, link 86 -1, linkat 265 37, listxattr 194 11, llistxattr 195 12,
lremovexattr 198 15, lseek 8 62, lsetxattr 189 6, lstat 6 -1, madvise 28 233,
membarrier 324 283, mincore 27 232, mkdir 83 -1, mkdirat 258 34, mknod 133 -1,
mknodat 259 33, mlock 149 228, mlock2 325 284, mlockall 151 230, mmap 9 222,
mprotect 10 226, mremap 25 216, msync 26 227, munlock 150 229, munlockall 152 231,
munmap 11 215, nanosleep 35 101, newfstatat 262 79, open 2 -1, openat 257 56,
openat2 437 437, pause 34 -1, pidfd_open 434 434, pipe 22 -1,
pipe2 293 59, pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288, poll 7 -1,
ppoll 271 73, prctl 157 167, pread64 17 67, preadv 295 69, preadv2 327 286,
prlimit64 302 261, pselect6 270 72, pwrite64 18 68, pwritev 296 70, pwritev2 328 287,
read 0 63, readahead 187 213, readlink 89 -1, readlinkat 267 78, readv 19 65,
recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212, removexattr 197 14, rename 82 -1,
renameat 264 38, renameat2 316 276, restart_syscall 219 128, rmdir 84 -1, rseq 334 293,
rt_sigaction 13 134, rt_sigpending 127 136, rt_sigprocmask 14 135,
rt_sigqueueinfo 129 138, rt_sigreturn 15 139, rt_sigsuspend 130 133,
rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getattr 315 275,
sched_getparam 143 121, sched_getscheduler 145 120, sched_rr_get_interval 148 127,
sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
sched_setscheduler 144 119, sched_yield 24 124, seccomp 317 277, select 23 -1,
sendfile 40 71, sendmmsg 307 269, sendmsg 46 211, sendto 44 206, set_robust_list 273 99,
set_thread_area 205 -1, set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151,
setgid 106 144, setgroups 116 159, setitimer 38 103, setpgid 109 154,
setpriority 141 140, setregid 114 143, setresgid 119 149, setresuid 117 147,
setreuid 113 145, setrlimit 160 164, setsid 112 157, setsockopt 54 208, setuid 105 146,
setxattr 188 5, shutdown 48 210, sigaltstack 131 132, signalfd 282 -1, signalfd4 289 74,
socketpair 53 199, splice 275 76, stat 4 -1, statfs 137 43, statx 332 291,
symlink 88 -1, symlinkat 266 36, sync_file_range 277 84, sysinfo 99 179, tee 276 77,
tgkill 234 131, time 201 -1, timer_create 222 107, timer_delete 226 111,
timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110,
timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86, times 100 153,
tkill 200 130, truncate 76 45, umask 95 166, uname 63 160, unlink 87 -1,
unlinkat 263 35, utime 132 -1, utimensat 280 88, utimes 235 -1, vfork 58 -1,
wait4 61 260, waitid 247 95, write 1 64, writev 20 66
"""

# Up to this number, calls that are not allowed fail with EPERM. Higher numbers fail
# with ENOSYS, as on an older kernel, so that C libraries use older calls instead.
LAST_CLASSIC = 450

# Allowed `ioctl` requests: FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. None of them sends
# signals or changes a terminal.
IOCTLS = (0x541B, 0x5421, 0x5450, 0x5451)

# Allowed `fcntl` commands: for duplicates, flags, locks, seals and reading pipe sizes,
# but not for signals.
FCNTLS = (*range(8), 9, 11, 36, 37, 38, 1030, 1032, 1033, 1034)

# Allowed `prctl` options, which concern only the caller. PR_SET_PDEATHSIG is not
# allowed, because with it a program could survive the end of the sandbox.
PRCTLS = (
    *(2, 3, 4, 7, 15, 16, 21, 22, 23, 27, 29, 30, 36, 37, 38, 39, 40, 41, 42, 47),
    *(50, 51, 52, 53, 54, 55, 56, 0x53564D41),
)


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
# System calls that a process may make only for itself: the first argument, a process
# id, must be 0.
_OF_ITSELF = """
prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr
"""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_CLONE_NAMESPACES, _CLONE_THREAD = 0x7E020000, 0x10000
_AF_UNIX, _SOCK_TYPE_MASK = 1, 0xF
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5  # A pair of these can only reach itself.
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED and MAP_ANONYMOUS


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _fail(number: int) -> bytes:
    """Return filter code that skips the call and reports an errno; 0 is success."""
    return _op(_RETURN, 0x00050000 | number)


_KILL_PROCESS = _op(_RETURN, 0x80000000)
_ALLOW = _op(_RETURN, 0x7FFF0000)
_REFUSE = _fail(errno.EPERM)
_UNKNOWN = _fail(errno.ENOSYS)


def _argument(index: int) -> bytes:
    """Return filter code that loads the low 32 bits of argument ``index``."""
    return _op(_LOAD, 16 + 8 * index)


def _if_one_of(index: int, values: tuple[int, ...], hit: bytes, miss: bytes) -> bytes:
    """Return filter code: ``hit`` if an argument is in ``values``, else ``miss``."""
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
    """Return the filter's last part: allow the calls ``allowed``, refuse all others."""

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
    """Return filter code for system calls whose arguments are checked, by name."""
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
    """Return the filter code that only the strict filter has, by system call."""
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
