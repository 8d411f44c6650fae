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
from typing import Any

from . import box, child, libc
from .confine import become
from .settings import ZygoteSettings
from .watch import ProcessWatch

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
