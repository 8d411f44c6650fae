"""Zygote: a long-lived interpreter that forks one child per execution.

For each job (one execution), the zygote reads one JSON line from its control socket.
Four file descriptors come with that line: the payload (files and command), stdout,
stderr and the report. A job's content passes only through these descriptors. It is
never in the zygote's memory, which later children inherit. When the child ends or its
time is over, all processes that it started are killed and reaped before the next job.
"""

import gc
import importlib
import json
import os
import select
import signal
import site
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

from . import box, child, libc
from .confine import become
from .settings import ZygoteSettings, killed_at_limit

_PRELOAD = """
argparse collections collections.abc contextlib copy csv dataclasses datetime decimal
enum fractions functools heapq itertools json math operator pathlib random re shutil
statistics string tempfile textwrap typing
"""
_DESCRIPTORS = 4
_REAP_S = 60.0
_COLLECT_S = 10.0
_BLOCK = 512  # of rusage on Linux
_OVER = {
    "memory": "Its processes together used more memory than total_memory_mb allows.",
    "disk": "Its processes together wrote more to the disk than disk_mb allows.",
    "threads": "It had more threads than Limits.processes allows.",
    "files": "It left more files and folders than can be removed.",
}


_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SOONEST_S, _LATEST_S = 0.02, 0.25
_MEMORY_S = 0.1
_LOOKS = 16
_COUNT_SHARE = 5


class _Process(NamedTuple):
    cpu_s: float
    resident: int
    threads: int
    runs: bool


class ProcessWatch:
    """Measures the processes of one execution, and finds the limit that they exceed.

    The time limit counts the CPU time, plus the time in which all processes sleep. The
    time in which they wait for a CPU does not count, so results are the same on a busy
    machine.
    """

    def __init__(self, settings: ZygoteSettings, pid: int, timeout_s: float) -> None:
        self._settings = settings
        self._pid = pid
        self._timeout_s = timeout_s
        self._every_s = min(_LATEST_S, max(_SOONEST_S, timeout_s / _LOOKS))
        if settings.group is None:
            self._every_s = min(self._every_s, _MEMORY_S)
        self._kills = self._killed()
        self._cpu_s = self._slept_s = 0.0
        self._far = time.monotonic() + settings.far_s(timeout_s)
        self._last = time.monotonic()
        self.due = self._last + self._every_s
        self._count_due = self.due

    def over(self, reaped_cpu_s: float, reaped_bytes: int) -> str:
        """Return the exceeded limit: time, memory, disk, threads, files or ""."""
        now = time.monotonic()
        limits = self._settings.limits
        members = self._members()
        seen = [_look(pid) for pid in members]
        cpu_s = reaped_cpu_s + sum(process.cpu_s for process in seen)
        if not any(process.runs for process in seen):
            # If this check is late, the machine is busy, and the processes may have
            # waited too.
            span = min(now, self.due + _SOONEST_S) - self._last
            self._slept_s += max(0.0, span - max(0.0, cpu_s - self._cpu_s))
        self._cpu_s, self._last = cpu_s, now
        left = self._timeout_s - cpu_s - self._slept_s
        self.due = now + min(self._every_s, max(_SOONEST_S, left))
        if self.killed_for_memory() or self._hold_too_much(seen):
            return "memory"
        if self.wrote_too_much(reaped_bytes + sum(map(self._written, members))):
            return "disk"
        threads = sum(process.threads for process in seen)
        if self._settings.rung.strict and threads > limits.processes:
            return "threads"  # On other rungs the kernel counts them.
        if self._has_too_many_files():
            return "files"
        return "time" if left <= 0 or now >= self._far else ""

    def killed_for_memory(self) -> bool:
        """Return whether the kernel has killed a process at the memory limit."""
        return self._killed() > self._kills

    def wrote_too_much(self, size: int) -> bool:
        """Return whether ``size`` bytes written to the host's disk exceed the limit."""
        limit = self._settings.limits.disk_mb << 20
        return self._settings.scratch is not None and size > limit

    def _has_too_many_files(self) -> bool:
        """Return whether there are more files than can be removed; counted rarely."""
        scratch, now = self._settings.scratch, time.monotonic()
        if scratch is None or now < self._count_due:
            return False
        found = box.holds_more(box.folder_of(scratch), box.MOST_LEFT)
        self._count_due = now + _COUNT_SHARE * (time.monotonic() - now)
        return found

    def _written(self, pid: int) -> int:
        """Return the bytes written to the host's disk; 0 for a workspace in memory."""
        if self._settings.scratch is not None:
            with suppress(OSError), open(f"/proc/{pid}/io", "rb") as source:
                words = source.read().split()
                return int(words[words.index(b"write_bytes:") + 1])
        return 0

    def _killed(self) -> int:
        deaths = self._settings.deaths
        return 0 if deaths is None else killed_at_limit(deaths)

    def _hold_too_much(self, seen: list[_Process]) -> bool:
        """Return whether too much memory is used, unless the kernel limits it."""
        limits = self._settings.limits
        is_one = not self._settings.rung.counts_processes
        bounded = is_one and limits.memory_mb <= limits.total_memory_mb
        if self._settings.group is not None or bounded:
            return False
        shared = _look(os.getpid()).resident
        held = sum(max(0, process.resident - shared) for process in seen)
        return held > limits.total_memory_mb << 20

    def _members(self) -> list[int]:
        """Return the ids of the execution's processes."""
        settings = self._settings
        if settings.group is not None:
            # Opened at each check, because older control groups cache the list of an
            # open file as long as it is read at least once a second.
            with open(f"/proc/self/fd/{settings.group}", "rb") as listed:
                ids = map(int, listed.read().split())
                return [pid for pid in ids if pid != os.getpid()]
        if not settings.rung.counts_processes:
            return [self._pid]
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and name != "1":
                with suppress(OSError):
                    if settings.identity in (None, os.stat(f"/proc/{name}").st_uid):
                        found.append(int(name))
        return found


def _look(pid: int) -> _Process:
    """Return the resources that a process uses; all 0 if it has ended."""
    with suppress(OSError):
        state, fields = _stat(f"/proc/{pid}/stat")
        runs, threads = state == b"R", int(fields[16])
        if not runs and threads > 1:  # The line describes only the first thread.
            for thread in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError):
                    runs |= _stat(f"/proc/{pid}/task/{thread}/stat")[0] == b"R"
        cpu_s = sum(map(int, fields[10:14])) / _TICKS
        return _Process(cpu_s, int(fields[20]) * _PAGE, threads, runs)
    return _Process(0.0, 0, 0, runs=False)


def _stat(path: str) -> tuple[bytes, list[bytes]]:
    """Read a file ``/proc/.../stat``; return the state, and the fields after it."""
    with open(path, "rb") as source:
        state, *numbers = source.read().rpartition(b")")[2].split()
    return state, numbers


class Zygote:
    """Runs executions that the host requests on ``control``, each in a forked child."""

    def __init__(self, control: socket.socket, settings: ZygoteSettings) -> None:
        self._control = control
        self._settings = settings
        self._rung = settings.rung
        self._identity = settings.identity
        self._running = 0
        self._cpu_s = 0.0
        self._peak_kb = 0
        self._bytes = 0
        if self._rung.bubblewrap and os.getpid() != 1:
            raise RuntimeError("the zygote is not the init of its PID namespace")
        if self._rung.own_identity and not self._identity:
            raise RuntimeError("this rung sweeps by user id and has none")
        self._box: box.Box
        if settings.scratch is None:
            owner = os.getuid() if self._identity is None else self._identity
            self._box = box.MountedBox(owner=owner, size_mb=settings.limits.file_mb)
        else:
            self._box = box.DirectoryBox(settings.scratch, owner=self._identity)
        self._is_ended = False
        self._wakeup, writer = os.pipe()
        for end in (self._wakeup, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the poll up
        if self._rung.bubblewrap:
            # In its own namespace, an init receives only signals that it handles.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
        else:
            signal.signal(signal.SIGTERM, self._end)
            if sys.platform == "linux":
                libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
                libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)
        if settings.group is not None:
            os.write(settings.group, b"0")
        site.setquit()
        site.sethelper()

    def serve(self) -> None:
        """Run executions that the host requests, until it closes the socket."""
        self._sweep(0)
        gc.freeze()
        self._send({"serving": True})
        spoiled = False
        jobs = 0
        poll = self._poll()
        while not spoiled:
            while self._control.fileno() not in self._polled(poll, None):
                pass  # a signal arrived
            data, files, _, _ = socket.recv_fds(self._control, 65536, _DESCRIPTORS)
            if not data:
                return
            if len(files) != _DESCRIPTORS:
                raise RuntimeError(f"a job came with {len(files)} descriptors")
            jobs += 1
            if jobs == 2:  # a machine is tested by one job
                _preload()
            reply = self._run(json.loads(data), files)
            spoiled = reply["spoiled"]
            self._send(reply)

    def shut(self) -> None:
        """Kill the running execution, if any, and remove all folders on the disk."""
        self._sweep(self._running)
        if self._settings.scratch is not None:
            box.remove_tree(self._settings.scratch)

    def _end(self, *_: object) -> None:
        """Handle SIGTERM: set a flag, which makes the process end soon."""
        # An exception raised in a signal handler could prevent `shut`.
        self._is_ended = True

    def _poll(self) -> select.poll:
        """Return a poll object to wait for messages from the host, and for signals."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        return poll

    def _polled(self, poll: select.poll, wait_ms: float | None) -> list[int]:
        """Return the descriptors with messages; raise SystemExit after SIGTERM."""
        found = [descriptor for descriptor, _ in poll.poll(wait_ms)]
        if self._wakeup in found:
            os.read(self._wakeup, 4096)
        if self._is_ended:
            raise SystemExit
        return found

    def _send(self, line: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(line).encode() + b"\n")

    def _run(self, job: dict[str, Any], files: list[int]) -> dict[str, Any]:
        """Run one execution with its four descriptors; return the reply."""
        self._box.open()
        timeout_s = job["timeout_s"]
        self._cpu_s, self._bytes, self._peak_kb = 0.0, 0, 0
        started = time.monotonic()
        pid = self._running = os.fork()
        if pid == 0:
            child.execute(self._settings, self._box, timeout_s, files)
        self._send({"started": True})
        watch = ProcessWatch(self._settings, pid, timeout_s)
        reply = self._wait(pid, watch)
        self._sweep(pid)
        if watch.killed_for_memory():
            reply = _over("memory")
        elif watch.wrote_too_much(self._bytes):
            reply = _over("disk")
        elif self._cpu_s > timeout_s and "error" not in reply:
            reply = _over("time")
        used = {"cpu_s": self._cpu_s, "peak_mb": self._peak_kb / 1024}
        reply |= {"wall_s": time.monotonic() - started, **used}
        if job["collect"] and reply["status"] != "timed_out" and "error" not in reply:
            self._cpu_s, self._bytes = 0.0, 0
            pid = os.fork()
            if pid == 0:
                child.collect(self._settings, self._box, timeout_s, files)
            self._wait(pid, ProcessWatch(self._settings, pid, _COLLECT_S))
            self._sweep(pid)
        for descriptor in files:
            os.close(descriptor)
        self._running = 0
        if spoiled := not self._box.close():
            reply |= _over("files") | {"exit_code": None}
        return reply | {"spoiled": spoiled}

    def _wait(self, pid: int, watch: ProcessWatch) -> dict[str, Any]:
        """Wait for the child, or kill it at a limit; return fields of the result."""
        poll = self._poll()
        while True:
            try:
                found, status = self._reap()
            except ChildProcessError:
                return {"status": "sandbox_error"}
            if found == pid:
                code = os.waitstatus_to_exitcode(status)
                if code < 0:
                    return {"status": "killed", "signal": -code}
                return {"status": "exited", "exit_code": code}
            is_due = time.monotonic() >= watch.due
            if is_due and (limit := watch.over(self._cpu_s, self._bytes)):
                _kill(pid)
                return _over(limit)
            if found:
                continue
            wait_s = max(0.0, watch.due - time.monotonic())
            if self._control.fileno() in self._polled(poll, wait_s * 1000 + 1):
                raise SystemExit

    def _reap(self) -> tuple[int, int]:
        """Reap a child that has ended; return its id and wait status, or 0 and 0."""
        found, status, usage = os.wait4(-1, os.WNOHANG)
        if found:
            self._cpu_s += usage.ru_utime + usage.ru_stime
            self._bytes += usage.ru_oublock * _BLOCK
            self._peak_kb = max(self._peak_kb, usage.ru_maxrss)
        return found, status

    def _sweep(self, pid: int) -> None:
        """Kill and reap all processes of an execution; ``pid`` is the first of them."""
        deadline = time.monotonic() + _REAP_S
        self._kill_all(pid)
        with suppress(ChildProcessError):
            while True:
                found, _ = self._reap()
                if found:
                    continue
                if time.monotonic() > deadline:
                    raise TimeoutError("a process of the execution survived SIGKILL")
                time.sleep(0.0005)
                self._kill_all(pid)

    def _kill_all(self, pid: int) -> None:
        if self._rung.bubblewrap:
            if os.getpid() == 1:  # Then -1 kills only in this PID namespace.
                _kill(-1)
        elif self._identity is not None:  # with that user id
            helper = os.fork()
            if helper == 0:
                try:
                    become(self._identity)
                    _kill(-1)
                finally:
                    os._exit(0)
            os.waitpid(helper, 0)
        elif pid:
            _kill(-pid)
            children = f"/proc/self/task/{os.getpid()}/children"
            with suppress(OSError), open(children) as orphans:
                for orphan in orphans.read().split():
                    _kill(int(orphan))


def _over(limit: str) -> dict[str, Any]:
    """Return the fields of ``SandboxResult`` after an execution exceeded ``limit``."""
    if limit == "time":
        return {"status": "timed_out"}
    why = _OVER[limit]
    return {"status": "killed", "signal": int(signal.SIGKILL), "error": why}


def _kill(pid: int) -> None:
    """Send SIGKILL to a process; do nothing if it has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _preload() -> None:
    """Import modules that many programs use, so that children need not."""
    for module in _PRELOAD.split():
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def main(descriptor: int, settings: str) -> None:
    """Run executions that the host requests over an inherited socket, then exit."""
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    zygote = Zygote(control, ZygoteSettings.decode(settings))
    try:
        zygote.serve()
    except (ConnectionError, SystemExit):
        pass
    finally:
        zygote.shut()
    os._exit(0)
