"""What happens below a process of this machine, from ``/proc``."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def children(pid: int) -> set[int]:
    """The direct children of a process."""
    return {child for child, parent in _parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    parents = _parents()
    found = {pid}
    while (
        more := {child for child, parent in parents.items() if parent in found} - found
    ):
        found |= more
    return found - {pid}


def user_of(pid: int) -> int:
    """The real user id of a process."""
    return int(_field(pid, "Uid"))


def with_argument(text: str) -> list[int]:
    """Processes of this machine with this text as an argument."""
    found = []
    for pid in _parents():
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if text.encode() in line.split(b"\0"):
                found.append(pid)
    return found


def wait_until_gone(pids: set[int]) -> None:
    """Wait for all of these to end (a zombie has ended)."""
    _wait(lambda: not any(map(is_there, pids)))


def is_there(pid: int) -> bool:
    """Whether a process has not ended."""
    return _field(pid, "State") not in ("", "Z", "X")


def wait_for_sleepers(below: int, count: int = 1) -> list[int]:
    """Wait for confined processes that wait for SIGUSR1, and return them."""
    caught = 1 << (signal.SIGUSR1 - 1)
    found: list[int] = []

    def asleep() -> bool:
        found[:] = [
            pid
            for pid in descendants(below)
            if int(_field(pid, "SigCgt") or "0", 16) & caught
            and _field(pid, "Seccomp") == "2"
        ]
        return len(found) == count

    _wait(asleep)
    return found


def _parents() -> dict[int, int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: int(_field(pid, "PPid") or 0) for pid in pids}


def _field(pid: int, name: str) -> str:
    """The first word of a line of a process's status, empty if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.split()[1]
    return ""


def _wait(holds: Callable[[], bool]) -> None:
    """Poll; a test that waits in vain fails, whatever it waits for."""
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("what the test waits for did not happen")
        time.sleep(0.02)
