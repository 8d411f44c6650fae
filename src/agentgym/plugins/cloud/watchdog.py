"""Watchdog: run training on a remote machine, and end the machine if it is rented.

The watchdog is the parent process of training. It has its own session, so that it
continues when the SSH connection breaks. It imports only the standard library. It reads
its input from a pipe, and keeps the secrets in this input in memory only.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentgym.plugins.cloud.run_server import write_json
from agentgym.version import __version__

_LOOK_S = 0.1
_RETRY_S = 10.0
_TIMEOUT_S = 30.0
_GRACE_S = 60.0
"""Seconds from the request to stop training until it is killed."""
_PARTING_S = 60.0
"""Seconds from the removal of the run by the client until a rented machine ends itself;
usually the client ends the machine earlier."""


class Watchdog:
    """Runs one training process, and ends a rented machine.

    ``attempt`` is the folder for this process's files. ``order`` has the keys ``train``
    (the input of the training process) and ``ending``: None, or the fields of an
    EndRequest, with the seconds ``ends_s`` until a rented machine ends itself (None:
    never), and ``silent_s`` of the same after the client's last heartbeat.
    """

    def __init__(self, attempt: Path, order: dict[str, Any]) -> None:
        self._attempt, self._train = attempt, order["train"]
        self._ending: dict[str, Any] | None = order["ending"]

    def run(self) -> None:
        """Run the training, complete ``outcome.json``, and end a rented machine."""
        if self._ending is not None:  # this process lives until the machine ends
            threading.Thread(target=self._guard).start()
        child = self._start()
        with suppress(Exception):
            self._watch(child)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        self._conclude(child.wait())

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "agentgym.plugins.cloud.trainee"]
        with (self._attempt / "log").open("ab") as log:
            child = subprocess.Popen(
                [*words, str(self._attempt)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._train["folder"],
                start_new_session=True,
            )
        assert child.stdin is not None
        with suppress(BrokenPipeError), child.stdin as pipe:
            pipe.write(json.dumps(self._train).encode())
        return child

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until training ends; interrupt it on request."""
        until: float | None = None
        while child.poll() is None and (until is None or time.monotonic() < until):
            time.sleep(_LOOK_S)
            if until is None and (self._attempt / "stop").exists():
                child.send_signal(signal.SIGINT)
                until = time.monotonic() + _GRACE_S

    def _conclude(self, code: int) -> None:
        """Write ``outcome.json`` if training did not."""
        path = self._attempt / "outcome.json"
        why = ", as it is when memory runs out" * (code == -signal.SIGKILL)
        found = {"kind": "killed", "message": f"was killed (exit code {code}{why})"}
        if (self._attempt / "stop").exists():
            found = {"kind": "interrupted", "message": ""}
        if not path.exists():
            write_json(path, found)

    def _guard(self) -> None:
        """End the machine at the cost limit, without a client, or after the run."""
        assert self._ending is not None
        ends_s, silent_s = self._ending["ends_s"], self._ending["silent_s"]
        begun = heard = time.monotonic()
        last_beat = 0
        while self._attempt.exists():
            time.sleep(_LOOK_S)
            now, beat = time.monotonic(), last_beat
            with suppress(OSError):
                beat = (self._attempt.parent / "heartbeat").stat().st_mtime_ns
            if beat != last_beat:
                last_beat, heard = beat, now
            if now - heard > silent_s or (ends_s is not None and now - begun > ends_s):
                self._end_machine()
        time.sleep(_PARTING_S)
        self._end_machine()

    def _end_machine(self) -> None:
        """Ask the provider repeatedly to end this machine; never return."""
        assert self._ending is not None
        request = urllib.request.Request(
            self._ending["url"],
            method=self._ending["method"],
            data=self._ending["body"].encode() or None,
            headers={
                "Authorization": f"Bearer {self._ending['key']}",
                "Content-Type": "application/json",
                "User-Agent": f"agentgym/{__version__}",
            },
        )
        while True:
            with suppress(Exception):  # must go on until the machine ends
                urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
            time.sleep(_RETRY_S)


def main(attempt: Path) -> None:
    """Run a Watchdog with the ``order`` that is read from standard input as JSON."""
    order = json.loads(sys.stdin.buffer.read())
    with (attempt / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (attempt / ".lock").rename(attempt / "lock")
        watchdog = Watchdog(attempt, order)
        del order
        watchdog.run()


if __name__ == "__main__":
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(Path(sys.argv[1]))
