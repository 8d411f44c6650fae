"""Scripts that try to get out. Each prints REACHED for what it reached, or refused."""

PRELUDE = """\
import ctypes, os, socket, sys, time
def attempt(call):
    try:
        value = call()
    except (OSError, PermissionError) as error:
        print("refused", error)
    else:
        print("REACHED", value)
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""

NETWORK = (
    PRELUDE
    + """
for family, kind in [
    (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM),
    (socket.AF_INET6, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM),
    (socket.AF_UNIX, socket.SOCK_DGRAM), (socket.AF_NETLINK, socket.SOCK_RAW),
]:
    attempt(lambda: socket.socket(family, kind))
attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
"""
)

WRITE_HOST = (
    PRELUDE
    + """
attempt(lambda: open(os.path.join(sys.argv[1], "written"), "w"))
attempt(lambda: os.mkdir(os.path.join(sys.argv[1], "made")))
attempt(lambda: os.remove(os.path.join(sys.argv[1], "victim")))
attempt(lambda: os.rename(os.path.join(sys.argv[1], "victim"), "stolen"))
attempt(lambda: os.link(os.path.join(sys.argv[1], "victim"), "linked"))
attempt(lambda: os.truncate(os.path.join(sys.argv[1], "victim"), 0))
"""
)

WRITE_SYSTEM = (
    PRELUDE
    + """
for path in ["/usr/x", "/etc/x", "/x", "/dev/x", "/var/x", "/home/x", "/root/x",
             "/proc/sys/kernel/core_pattern", "/lib/x", "/run/x"]:
    attempt(lambda: open(path, "a"))
"""
)

READ_HOST = (
    PRELUDE
    + """
attempt(lambda: open(os.path.join(sys.argv[1], "secret")).read())
attempt(lambda: os.listdir(sys.argv[1]))
attempt(lambda: open("/etc/shadow").read())
attempt(lambda: os.listdir("/root/.ssh"))
"""
)

ATTRIBUTES = (
    PRELUDE
    + """
secret = os.path.join(sys.argv[1], "secret")
for follow in (True, False):
    attempt(lambda: os.getxattr(secret, "user.note", follow_symlinks=follow))
    attempt(lambda: os.listxattr(secret, follow_symlinks=follow))
    attempt(lambda: os.setxattr(secret, "user.x", b"", follow_symlinks=follow))
    attempt(lambda: os.removexattr(secret, "user.note", follow_symlinks=follow))
"""
)

ENVIRONMENT = """
import os
found = [repr(dict(os.environ))]
try:
    processes = os.listdir("/proc")
except OSError:
    processes = []
for pid in [*processes, "1", str(os.getppid()), "self"]:
    for name in ("environ", "cmdline"):
        try:
            found.append(open(f"/proc/{pid}/{name}").read())
        except OSError:
            pass
print("REACHED" if any("hunter2" in text for text in found) else "refused")
"""

SYSTEM_CALLS = (
    PRELUDE
    + """
import platform
column = ["x86_64", "aarch64"].index(platform.machine())
pair, _ = socket.socketpair()
own = ctypes.byref(ctypes.c_int(os.getppid()))
calls = {
    "unshare": ((272, 97), (0x10000000,)), "setns": ((308, 268), (0, 0)),
    "mount": ((165, 40), (0, 0, 0, 0, 0)), "umount2": ((166, 39), (b"/tmp", 2)),
    "ptrace": ((101, 117), (16, 1, 0, 0)), "bpf": ((321, 280), (0, 0, 0)),
    "keyctl": ((250, 219), (0, -3, 1)), "perf_event_open": ((298, 241), (0,) * 5),
    "shmget": ((29, 194), (0, 4096, 0o1777)), "msgget": ((68, 186), (0, 0o1777)),
    "memfd_create": ((319, 279), (b"x", 0)), "userfaultfd": ((323, 282), (1,)),
    "io_uring_setup": ((425, 425), (8, ctypes.create_string_buffer(120))),
    "clone new user": ((56, 220), (0x10000000 | 17, 0, 0, 0, 0)),
    "chroot": ((161, 51), (b"/",)),
    "process_vm_readv": ((310, 270), (1, 0, 0, 0, 0, 0)),
    "pdeathsig": ((157, 167), (1, 0, 0, 0, 0)), "newer than 2025": ((500, 500), ()),
    "clone3": ((435, 435), (0, 0)),
    "io_setup": ((206, 0), (8, ctypes.byref(ctypes.c_ulong(0)))),
    "inotify_init1": ((294, 26), (0,)), "fanotify_mark": ((301, 263), (0,) * 5),
    "vmsplice": ((278, 75), (1, 0, 0, 0)), "mq_open": ((240, 180), (b"x", 64, 0, 0)),
    "FIOSETOWN": ((16, 29), (pair.fileno(), 0x8901, own)),
    "SIOCSPGRP": ((16, 29), (pair.fileno(), 0x8902, own)),
    "FIOASYNC": ((16, 29), (pair.fileno(), 0x5452, own)),
    "F_SETOWN": ((72, 25), (pair.fileno(), 8, os.getppid())),
    "F_SETSIG": ((72, 25), (pair.fileno(), 10, 15)),
}
for name, (numbers, arguments) in calls.items():
    print(name, end=" ")
    attempt(lambda: syscall(numbers[column], *arguments))
"""
)

PRIVILEGES = (
    PRELUDE
    + """
import resource
attempt(lambda: os.setuid(0))
attempt(lambda: os.setgroups([0]))
attempt(lambda: syscall({"x86_64": 157}.get(os.uname().machine, 167), 39, 0, 0, 0, 0))
def raise_limit():
    try:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
    except ValueError as error:
        raise OSError(error)
attempt(raise_limit)
"""
)

FORK_BOMB = """
import os, time
def bomb():
    while True:
        try:
            if os.fork() == 0:
                time.sleep(0)
        except OSError:
            time.sleep(0.01)
try:
    os.fork() or os.setsid()
except OSError as error:
    print("refused", error)
    raise SystemExit
bomb()
"""

COUNT_FORKS = """
import os, time
children = 0
try:
    for _ in range(400):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children += 1
except OSError:
    pass
print(children)
"""

DAEMON = """
import os, sys
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", sys.argv[1]])
        os._exit(0)
    os.wait()
except OSError as error:
    print("refused", error)
"""

MEMORY_HOG = """
blocks = []
try:
    while True:
        blocks.append(bytearray(16 << 20))
except MemoryError:
    count = len(blocks)
    blocks.clear()
    print("stopped at", count * 16)
"""

MEMORY_CROWD = """
import os, time
try:
    for _ in range(12):
        if os.fork() == 0:
            block = bytearray(os.urandom(1) * (40 << 20))
            time.sleep(30)
            os._exit(0)
except OSError as error:
    print("refused", error)
    raise SystemExit
time.sleep(30)
"""

MEMORY_AMID_ORPHANS = """
import os, time
def orphan():
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(0.005)
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.005)
grown, told = os.pipe()
os.set_blocking(grown, False)
try:
    for _ in range(5):
        if os.fork() == 0:
            os.nice(19)
            held = []
            for _ in range(20):
                held.append(bytearray(b"x") * (3 << 20))
                time.sleep(0.02)
            os.write(told, b"x")
            time.sleep(30)
            os._exit(0)
    full = 0
    while full < 5:
        orphan()
        try:
            full += len(os.read(grown, 5))
        except BlockingIOError:
            pass
    for _ in range(300):
        orphan()
except OSError as error:
    print("refused", error)
"""

MASSACRE = """
import os, signal
for target in (os.getppid(), 1, -1, 0 - os.getpgid(os.getppid()) or 0):
    if target in (0, -0) or target == -os.getpgid(0):
        continue
    try:
        os.kill(target, signal.SIGKILL)
    except OSError as error:
        print("refused", error)
print("still here")
"""

DESCRIPTORS = """
import os
found = []
for number in range(256):
    try:
        os.fstat(number)
    except OSError:
        continue
    found.append(number)
print(found)
"""

SLEEPER = """
import signal, time
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
while not told:
    time.sleep(0.02)
print(open("own").read())
"""

SEEK = (
    PRELUDE
    + """
for box in sys.argv[1:]:
    attempt(lambda: os.listdir(box))
    attempt(lambda: open(box + "/own").read())
    attempt(lambda: open(box + "/own", "a"))
try:
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
except OSError:
    pids = []
for pid in pids:
    if int(pid) != os.getpid():
        attempt(lambda: os.listdir(f"/proc/{pid}/cwd"))
"""
)

SEARCH_MEMORY = """
import sys
head, tail = sys.argv[1].encode(), sys.argv[2].encode()
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        span, mode = line.split()[:2]
        if "r" not in mode or "[v" in line:
            continue
        start, end = (int(part, 16) for part in span.split("-"))
        try:
            memory.seek(start)
            data = memory.read(end - start)
        except OSError:
            continue
        at = data.find(head)
        while at >= 0:
            found += data.startswith(tail, at + len(head))
            at = data.find(head, at + 1)
        del data
print("REACHED" if found else "refused", found)
"""

ZYGOTE = (
    PRELUDE
    + """
import platform, signal
column = ["x86_64", "aarch64"].index(platform.machine())
none = (ctypes.c_ulong * 2)(0, 0)
cpus = (ctypes.c_ulong * 16)(1)
for pid in {os.getppid(), 1} - {0}:
    for kind in (1, 7):  # Sizes of files, open files.
        attempt(lambda: syscall((302, 261)[column], pid, kind, none, None))
    attempt(lambda: syscall((203, 122)[column], pid, 128, cpus))
    attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        attempt(lambda: os.kill(pid, number))
        attempt(lambda: syscall((234, 131)[column], pid, pid, number))
        attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number))
        attempt(lambda: signal.pidfd_send_signal(os.open(f"/proc/{pid}", 0), number))
attempt(lambda: os.setpriority(os.PRIO_USER, 0, 19))
time.sleep(0.1)
"""
)

HIDDEN_MEMORY = """
import mmap, os, sys, time
PIECE = 4 << 20
def hold(size):
    kept = mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    for start in range(0, size, PIECE):
        kept[start : start + PIECE] = b"x" * PIECE
        kept.madvise(mmap.MADV_DONTNEED, start, PIECE)
    time.sleep(0.5)
    assert kept[-1:] == b"x"
    print("REACHED", flush=True)
    os._exit(0)
def hold_zero(size):
    with open("/dev/zero", "r+b") as device:
        mmap.mmap(device.fileno(), size)
    print("REACHED /dev/zero")
if "lower" in sys.argv:
    try:
        open("/proc/self/oom_score_adj", "w").write("0")
    except OSError:
        pass
try:
    hold_zero(PIECE)
except OSError as error:
    print("refused", error)
try:
    for _ in range(4):
        if os.fork() == 0:
            try:
                hold(96 << 20)
            except OSError as error:
                print("refused", error, flush=True)
                os._exit(1)
    for _ in range(4):
        os.wait()
except OSError as error:
    print("refused", error)
"""

MANY_FILES = """
import os, sys
made = 0
try:
    for folder in range(int(sys.argv[1]) // 1000 + 1):
        os.mkdir(f"f{folder}")
        for name in range(1000):
            os.symlink("x", f"f{folder}/{name}")
            made += 1
except OSError:
    pass
print(made)
"""

FILL_DISK = """
import os, sys
kept, wrote = [], 0
try:
    for number in range(400):
        file = open(str(number), "wb", 0)
        if "room" in sys.argv:
            os.posix_fallocate(file.fileno(), 0, 10 << 20)
            wrote += 10 << 20
        for _ in range(5):
            wrote += file.write(bytes(2 << 20))
        if "hide" in sys.argv:
            kept.append(file)
            os.remove(str(number))
        if "child" in sys.argv and os.fork() == 0:
            continue
        elif "child" in sys.argv:
            os.wait()
            break
except OSError as error:
    print("refused", error)
print(wrote >> 20)
"""
