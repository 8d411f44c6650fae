"""Run a command with all processes that it starts; end them when the parent ends.

Usage as a program; PARENT is the process id of the caller, and FOLDER a folder to
remove at the end, or an empty text::

    python supervise.py PARENT FOLDER COMMAND...
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from shutil import rmtree

_TURN_S = 0.2
_ENDS_S = 20.0


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent has ended."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def end_descendants() -> None:
    """Kill all descendants of this process, until there are none left."""
    import psutil

    while found := psutil.Process().children(recursive=True):
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=5)
        reap()


def reap() -> None:
    """Collect the exit codes of ended children, so that no zombies stay."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(parent: int, folder: str, command: list[str]) -> int:
    """Run a command until it ends, the parent ends, or a signal arrives.

    Removes ``folder`` at the end, unless it is empty. Returns the exit code.
    """
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda given, _: received.append(given))
    adopt_orphans()
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}.")
    while process.poll() is None and not received and os.getppid() == parent:
        time.sleep(_TURN_S)
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
    code = process.poll()
    end_descendants()
    if folder:
        rmtree(folder, ignore_errors=True)
    return 1 if code is None or code < 0 else code


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
