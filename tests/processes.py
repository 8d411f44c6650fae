"""Finds the processes that a test has started, by a mark in their environment."""

import os
import time

import psutil

MARK = "TEST_PROCESS_MARK"


def processes_of(mark: str, patience_s: float = 60.0) -> list[str]:
    """Return the processes with the mark that are still there after a while.

    This one is not among them, nor what forks workers of rollouts and stays with it.
    """
    until = time.monotonic() + patience_s
    while True:
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == mark
                words = " ".join(process.cmdline())
                own = process.pid == os.getpid() or "rollout.workers" in words
                if marked and not own:
                    found.append(words[:200])
            except psutil.Error:
                continue
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.2)
