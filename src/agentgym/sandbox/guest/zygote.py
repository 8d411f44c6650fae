"""The zygote: a long-lived interpreter that forks one child per execution.

It reads one JSON line per job from its control socket, with the descriptors of the
payload, stdout, stderr and the report attached. The content of a job passes only
through those descriptors, from host to child and back: the zygote's own memory, which
every later child inherits, holds nothing of it. When the child ends or its time is up,
everything that it started is killed and reaped before the next job.
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
from typing import Any

from . import box, child, confine, libc

_PRELOAD = """
argparse collections collections.abc contextlib copy csv dataclasses datetime decimal
enum fractions functools heapq itertools json math operator pathlib random re shutil
statistics string tempfile textwrap typing
"""
PRELOAD = tuple(_PRELOAD.split())
DESCRIPTORS = 4
_REAP_SECONDS = 10.0
_MEMORY_CHECK_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TIMED_OUT, _ENDED, _ABANDONED = "timed_out", "ended", "abandoned"
_OVER_MEMORY = "over_memory"


class Zygote:
    """Serves jobs, one at a time, until the control socket closes.

    Args:
        control: Socket to the host.
        config: What the host's ``launch`` module writes.
    """

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self._control = control
        self._running = 0
        self._sweeping: str = config["sweep"]
        if self._sweeping == "namespace" and os.getpid() != 1:
            raise RuntimeError("the zygote is not the init of its PID namespace")
        self._identity: int | None = config["identity"]
        self._confinement = confine.Confinement(
            identity=self._identity,
            drop_capabilities=config["drop_capabilities"],
            landlock=config["landlock"],
            seccomp=config["seccomp"],
            strict=config["strict"],
            readable=tuple(config["readable"]),
        )
        self._box: box.Box
        self._scratch: str | None = config["scratch"]
        if self._scratch is None:
            owner = os.getuid() if self._identity is None else self._identity
            self._box = box.MountedBox(owner=owner, size_mb=config["tmpfs_mb"])
        else:
            self._box = box.DirectoryBox(self._scratch, owner=self._identity)
        self._path = [*config["path"], *sys.path]
        self._wakeup, writer = os.pipe()
        for end in (self._wakeup, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.signal(signal.SIGTERM, _stop)
        if sys.platform == "linux" and self._sweeping != "namespace":
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGTERM)
        sys.path[:] = self._path
        for module in config["preload"]:
            importlib.import_module(module)
        site.setquit()
        site.sethelper()

    def serve(self) -> None:
        """Serve jobs until the host closes the socket or dies."""
        self._sweep(0)
        gc.collect()
        gc.freeze()
        self._send({"serving": True})
        while job := self._receive():
            self._run(*job)

    def shut(self) -> None:
        """End a running execution and remove all folders of this zygote."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._sweep(self._running)
        if self._scratch is not None:
            box.remove_tree(self._scratch)

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next job and its descriptors, None at the end."""
        data, descriptors, _, _ = socket.recv_fds(self._control, 65536, DESCRIPTORS)
        while data and not data.endswith(b"\n"):
            data += self._control.recv(65536)
        if not data:
            return None
        if len(descriptors) != DESCRIPTORS:
            raise RuntimeError(f"a job came with {len(descriptors)} descriptors")
        return json.loads(data), descriptors

    def _run(self, job: dict[str, Any], descriptors: list[int]) -> None:
        """Run one job from its empty box to the sweep, and reply."""
        self._box.open()
        payload, out, err, report = descriptors
        started = time.monotonic()
        pid = self._running = os.fork()
        if pid == 0:
            child.execute(
                files=(payload, out, err, report),
                box=self._box,
                confinement=self._confinement,
                limits=job["limits"],
                path=self._path,
            )
        for descriptor in (out, err):
            os.close(descriptor)
        self._send({"started": True})
        ending, status, cpu = self._wait(
            pid, started + job["timeout_s"], job["total_memory_mb"] << 20
        )
        cpu += self._sweep(pid)
        wall = time.monotonic() - started
        if ending == _ABANDONED:
            raise SystemExit
        if job["collect_bytes"] and ending == _ENDED:
            self._collect((payload, report), job)
        for descriptor in (payload, report):
            os.close(descriptor)
        self._box.close()
        self._running = 0
        self._send(
            {
                "status": status,
                "timed_out": ending == _TIMED_OUT,
                "over_memory": ending == _OVER_MEMORY,
                "wall_s": wall,
                "cpu_s": cpu,
            }
        )

    def _wait(
        self, pid: int, deadline: float, most_memory: int
    ) -> tuple[str, int | None, float]:
        """Wait for a child; return how it ended, its wait status, CPU seconds."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        cpu = 0.0
        next_check = time.monotonic() + _MEMORY_CHECK_S
        while True:
            try:
                found, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return _ENDED, None, cpu
            if found:
                cpu += usage.ru_utime + usage.ru_stime
            if found == pid:
                return _ENDED, status, cpu
            now = time.monotonic()
            if now >= deadline:
                _kill(pid)
                return _TIMED_OUT, None, cpu
            if now >= next_check:
                if self._memory() > most_memory:
                    return _OVER_MEMORY, None, cpu
                next_check = time.monotonic() + _MEMORY_CHECK_S
            if found:
                continue
            wait = min(deadline, next_check) - now
            for descriptor, _ in poll.poll(wait * 1000 + 1):
                if descriptor == self._control.fileno():
                    _kill(pid)
                    return _ABANDONED, None, cpu
                os.read(self._wakeup, 4096)

    def _memory(self) -> int:
        """Return the resident bytes of all processes of the execution.

        What each shares with this zygote is not counted. A rung without
        subprocesses needs no sum: its one process has a limit.
        """
        if self._sweeping == "children":
            return 0
        pages = 0
        inherited = _resident_pages("self")
        for name in os.listdir("/proc"):
            if not name.isdigit() or name == "1":
                continue
            try:
                if self._identity in (None, os.stat(f"/proc/{name}").st_uid):
                    pages += max(0, _resident_pages(name) - inherited)
            except OSError:
                continue
        return pages * _PAGE

    def _sweep(self, pid: int) -> float:
        """Kill whatever the execution left, reap it, return its CPU seconds.

        Raises:
            TimeoutError: Something would not die; the host starts a new zygote.
        """
        cpu = 0.0
        deadline = time.monotonic() + _REAP_SECONDS
        self._kill_all(pid)
        while True:
            try:
                found, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return cpu
            if found:
                cpu += usage.ru_utime + usage.ru_stime
                continue
            if time.monotonic() > deadline:
                raise TimeoutError("a process of the execution survived SIGKILL")
            time.sleep(0.0005)
            self._kill_all(pid)

    def _kill_all(self, pid: int) -> None:
        """Send SIGKILL to every process that executions of this zygote can own."""
        if self._sweeping == "namespace":
            if os.getpid() == 1:  # Then -1 means this namespace and nothing else.
                _kill(-1)
        elif self._sweeping == "identity":
            self._kill_identity()
        elif pid:
            _kill(-pid)
            for orphan in _children():
                _kill(orphan)

    def _kill_identity(self) -> None:
        """Kill every process of the slot's own user id, from under that id."""
        if self._identity is None or self._identity <= 0:
            raise RuntimeError("this rung sweeps by user id and has none")
        helper = os.fork()
        if helper == 0:
            try:
                confine.become(self._identity)
                _kill(-1)
            finally:
                os._exit(0)
        os.waitpid(helper, 0)

    def _collect(self, files: tuple[int, int], job: dict[str, Any]) -> None:
        """Have a confined child report the changed files of the workspace."""
        pid = os.fork()
        if pid == 0:
            child.collect(
                files=files,
                box=self._box,
                confinement=self._confinement,
                limits=job["limits"],
                max_bytes=job["collect_bytes"],
            )
        self._wait(pid, time.monotonic() + _REAP_SECONDS, job["total_memory_mb"] << 20)
        self._sweep(pid)

    def _send(self, line: dict[str, Any]) -> None:
        """Send one line to the host."""
        self._control.sendall(json.dumps(line).encode() + b"\n")


def _children() -> list[int]:
    """Return the direct children of this process, orphans it adopted included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as source:
            return [int(pid) for pid in source.read().split()]
    except OSError:
        return []


def _resident_pages(name: str) -> int:
    """Return the resident pages of a process, by its name in ``/proc``."""
    with open(f"/proc/{name}/statm") as source:
        return int(source.read().split()[1])


def _kill(pid: int) -> None:
    """Send SIGKILL; that nobody is there is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _ignore(number: int, frame: object) -> None:
    """Let the signal only wake the poll up."""


def _stop(number: int, frame: object) -> None:
    """Leave through the normal way out."""
    raise SystemExit


def main(descriptor: int, config: str) -> None:
    """Serve on an inherited socket, then exit.

    Args:
        descriptor: Number of the control socket.
        config: JSON of the configuration.
    """
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    zygote = Zygote(control, json.loads(config))
    try:
        zygote.serve()
    except (ConnectionError, SystemExit):
        pass
    finally:
        zygote.shut()
    os._exit(0)
