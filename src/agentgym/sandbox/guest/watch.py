"""ProcessWatch: measure the resources that a running execution uses.

The time limit counts the CPU time, plus the time in which all processes sleep. The time
in which they wait for a CPU does not count, so results are the same on a busy machine.
"""

import os
import time
from contextlib import suppress
from typing import NamedTuple

from . import box
from .settings import ZygoteSettings

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
    """Measures the processes of one execution, and finds the limit that they exceed."""

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


def killed_at_limit(deaths: int) -> int:
    """Return the number of processes killed at a control group's memory limit."""
    words = os.pread(deaths, 4096, 0).split()
    return int(words[words.index(b"oom_kill") + 1])


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
