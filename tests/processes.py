"""Finds the processes that a test has started, by a mark in their environment."""

import os
import time

import psutil

MARK = "TEST_PROCESS_MARK"


def processes_of(mark: str, patience_s: float = 60.0) -> list[str]:
    """Return the commands of processes with the mark that are there after a while."""
    until = time.monotonic() + patience_s
    while found := _marked(mark):
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return list(found.values())


def listening(mark: str) -> list[str]:
    """Return the addresses that processes with the mark listen on."""
    marked = _marked(mark)
    return [
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in marked
    ]


def _marked(mark: str) -> dict[int, str]:
    """Return commands by process id: not this one's.

    Nor that of what forks workers of rollouts, which stays with this one.
    """
    found = {}
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(MARK) == mark
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        own = process.pid == os.getpid() or "rollout.workers" in words
        if marked and not own:
            found[process.pid] = words[:200]
    return found
