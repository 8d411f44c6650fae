"""List the system calls that programs in a sandbox may make.

Docker's default profile, for a process without capabilities, allows these calls and
some more. A sandbox refuses the additional calls, because they reach outside of the
sandbox or take memory that is not counted. They are for named sockets, shared memory
and queues of System V and POSIX, ``memfd``, asynchronous I/O, ``inotify``,
``fanotify``, ``ptrace``, adjusting clocks, whole-disk ``sync``, setting I/O priorities,
``vmsplice``, and ``pidfd_send_signal``, for which a filter cannot check the target
process. All calls that Docker's profile does not allow, such as those of newer kernels,
are refused too.
"""

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
"""Name of each call, and its numbers on x86_64 and aarch64 (-1: missing)."""

LAST_CLASSIC = 450
"""Up to this number, calls that are not allowed fail with EPERM. Higher numbers fail
with ENOSYS, as on an older kernel, so that C libraries use older calls instead."""

IOCTLS = (0x541B, 0x5421, 0x5450, 0x5451)
"""Allowed ``ioctl`` requests: FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. None of them sends
signals or changes a terminal."""

FCNTLS = (*range(8), 9, 11, 36, 37, 38, 1030, 1032, 1033, 1034)
"""Allowed ``fcntl`` commands: for duplicates, flags, locks, seals and reading pipe
sizes, but not for signals."""

PRCTLS = (
    *(2, 3, 4, 7, 15, 16, 21, 22, 23, 27, 29, 30, 36, 37, 38, 39, 40, 41, 42, 47),
    *(50, 51, 52, 53, 54, 55, 56, 0x53564D41),
)
"""Allowed ``prctl`` options, which concern only the caller. PR_SET_PDEATHSIG is not
allowed, because with it a program could survive the end of the sandbox."""
