"""Watchdog: start training on a remote machine; stop it when a limit is reached.

The watchdog is the parent process of training. It has its own session, so that it
continues when the SSH connection breaks. It imports only the standard library. It reads
its input from a pipe, and keeps the secrets in this input in memory only. It also ends
a rented machine.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.plugins.cloud.run_server import write_json
from agentgym.version import __version__

_LOOK_S = 0.1
_RETRY_S = 10.0
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class EndLimits:
    """Seconds until training is stopped and a rented machine ends itself; None: never.

    Attributes:
        longest_s: Until training is stopped.
        ends_s: Until a rented machine ends itself, even while training, since the cost
            limit is reached.
        silent_s: Without a heartbeat of the client, until training is stopped.
        idle_s: Without a heartbeat after training, until a rented machine ends itself.
        parting_s: After the client has fetched all files, until a rented machine ends
            itself. Usually the client ends the machine earlier.
        grace_s: From the request to stop training until it is killed.
    """

    longest_s: float | None = None
    ends_s: float | None = None
    silent_s: float | None = None
    idle_s: float | None = 900.0
    parting_s: float = 60.0
    grace_s: float = 60.0


class Watchdog:
    """Runs one training process within its limits, and then ends a rented machine.

    ``attempt`` is the folder for this process's files. ``order`` has the keys ``train``
    (the input of the training process), ``limits`` (the fields of an EndLimits) and
    ``ending`` (the fields of an EndRequest, or None).
    """

    def __init__(self, attempt: Path, order: dict[str, Any]) -> None:
        self._attempt = attempt
        self._limits = EndLimits(**order["limits"])
        self._ending: dict[str, str] | None = order["ending"]
        self._train = order["train"]
        self._begun = self._heard = time.monotonic()
        self._beat = self._last_beat()
        self._why: str | None = None

    def run(self) -> None:
        """Run the training, complete ``outcome.json``, and end a rented machine."""
        child = self._start()
        if self._ending is not None and self._limits.ends_s is not None:
            end = threading.Timer(self._limits.ends_s, self._end_machine)
            end.daemon = True
            end.start()
        with suppress(Exception):  # the machine must end in any case
            self._watch(child)
        _kill(child)
        self._conclude(child.wait())
        if self._ending is not None:
            self._linger()
            self._end_machine()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._attempt / "log").open("ab") as log:
            trainee = "agentgym.plugins.cloud.trainee"
            child = subprocess.Popen(
                [sys.executable, "-m", trainee, str(self._attempt)],
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
        """Wait until training ends; interrupt it at a limit or on request."""
        until: float | None = None
        while child.poll() is None:
            time.sleep(_LOOK_S)
            asked = (self._attempt / "stop").exists()
            if self._why is None:
                self._why = self._overdue()
            if (asked or self._why) and until is None:
                child.send_signal(signal.SIGINT)
                until = time.monotonic() + self._limits.grace_s
            if until is not None and time.monotonic() > until:
                return

    def _overdue(self) -> str | None:
        """Describe the time limit that is reached; return None if none is."""
        silence_s, limits = self._silence_s(), self._limits
        lasted_s = time.monotonic() - self._begun
        if limits.longest_s is not None and lasted_s > limits.longest_s:
            return f"the longest duration, {limits.longest_s:.0f} s, was reached"
        if limits.silent_s is not None and silence_s > limits.silent_s:
            return f"the client was silent for {limits.silent_s:.0f} s"
        return None

    def _silence_s(self) -> float:
        """Return the seconds since the client's last heartbeat."""
        if (beat := self._last_beat()) != self._beat:
            self._beat, self._heard = beat, time.monotonic()
        return time.monotonic() - self._heard

    def _last_beat(self) -> int:
        with suppress(OSError):
            return (self._attempt.parent / "heartbeat").stat().st_mtime_ns
        return 0

    def _conclude(self, code: int) -> None:
        """Write ``outcome.json`` if training did not, or if a limit ended training."""
        path = self._attempt / "outcome.json"
        found: dict[str, Any] = {"kind": "killed", "code": code}
        with suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
        if self._why is not None and found["kind"] != "done":
            found = {"kind": "limit", "message": self._why}
        elif found["kind"] == "killed" and (self._attempt / "stop").exists():
            found = {"kind": "interrupted"}
        with suppress(OSError):
            write_json(path, found)
            (self._attempt / "over").touch()

    def _linger(self) -> None:
        """Wait until the client has fetched all files, then for ``parting_s``."""
        idle = self._limits.idle_s
        self._heard = time.monotonic()
        while not (self._attempt / "fetched").exists() and self._attempt.exists():
            time.sleep(_LOOK_S)
            if idle is not None and self._silence_s() > idle:
                return
        time.sleep(self._limits.parting_s)

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


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the training process and the processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


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
