"""The remote side of a run: start its training, report its progress, pack its files.

The client starts this program over SSH. It uses only the standard library. A second
process of it, the watchdog, is the parent of training. It has its own session, so that
it continues when the SSH connection breaks. It reads its input from a pipe, and keeps
the secrets in this input in memory only. Files in the run's folder::

    inputs/             the user's code, scenarios and files; training runs in it
    runs/NAME/          the run, as on the client
    attempt-1/          one process of training: progress.jsonl, log, outcome.json
    outbox/             a snapshot of the run, while the client fetches it
    heartbeat           time of the last request, and the name of its client
"""

import fcntl
import hashlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO

from agentgym.version import __version__

MODULE = "agentgym.plugins.cloud.run_server"
DATABASE = "rollouts.db"
LOG = "elsewhere.log"
"""File with the output of the remote training, in the client's run folder."""
STALE_S = 45.0
"""Seconds without a request after which a client counts as disconnected."""
_LOOK_S = 0.1
_RETRY_S = 10.0
_TIMEOUT_S = 30.0
_GRACE_S = 60.0
"""Seconds from the request to stop training until it is killed."""
_PARTING_S = 60.0
"""Seconds from the removal of the run by the client until a rented machine ends itself;
usually the client ends the machine earlier."""
_MOST = 1 << 20
_LEFT_OUT = ("checkpoints", "report.md", "report.html")


def start(folder: Path, number: int, order: bytes) -> None:
    """Start training in a process that continues without this connection.

    ``number`` counts the starts of the run; the same number starts nothing twice, so
    the client may repeat its request. ``order`` may have secrets.
    """
    attempt = folder / f"attempt-{number}"
    if attempt.exists():
        return
    json.loads(order)  # it is not complete if the connection broke
    attempt.mkdir()
    beat(folder)
    with (attempt / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(folder), "watch", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(order)
    while process.poll() is None and not (attempt / "lock").exists():
        time.sleep(_LOOK_S)


def poll(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the run's state, and the events from a byte ``offset`` on.

    The request has the ``offset``, the seconds ``wait_s`` to wait for events, the
    ``client``'s name, whether training should ``stop``, and the user's ``replies`` to
    questions by number. It can be repeated.
    """
    _require_only_client(folder, request["client"])
    attempt, offset = last_attempt(folder), request["offset"]
    if request["stop"]:
        (attempt / "stop").touch()
    for number, value in request["replies"].items():
        write_json(attempt / f"reply-{number}.json", value)
    until = time.monotonic() + request["wait_s"]
    while True:
        state = run_state(attempt)  # before the events, so that none is missed
        events = _read_lines(attempt / "progress.jsonl", offset)
        is_over = state["state"] != "running" or time.monotonic() > until
        if events or is_over:
            break
        time.sleep(_LOOK_S)
    return {**state, "events": events.decode(), "offset": offset + len(events)}


def _require_only_client(folder: Path, client: str) -> None:
    """Write the heartbeat; exit if another client has written it just now."""
    heartbeat = folder / "heartbeat"
    with suppress(FileNotFoundError):
        silence_s = time.time() - heartbeat.stat().st_mtime
        if heartbeat.read_text() != client and silence_s < STALE_S:
            sys.exit("another client follows this run at the moment")
    heartbeat.write_text(client)


def beat(folder: Path) -> None:
    """Record the current time as the time of the client's last request."""
    with suppress(FileNotFoundError):  # the run was removed
        (folder / "heartbeat").touch()


def run_state(attempt: Path) -> dict[str, Any]:
    """Return a training process: its state, its number and its outcome."""
    state, outcome = "none", None
    if attempt.exists():
        is_alive = is_locked(attempt / "lock")
        with suppress(OSError, ValueError):
            outcome = json.loads((attempt / "outcome.json").read_bytes())
        state = "running" if is_alive else "lost" if outcome is None else "ended"
    number = int(attempt.name.partition("-")[2])
    return {"state": state, "attempt": number, "outcome": outcome}


def last_attempt(folder: Path) -> Path:
    """Return the folder of the last start; ``attempt-0`` if there was none."""
    names = (path.name for path in folder.glob("attempt-*"))
    number = max((int(name.partition("-")[2]) for name in names), default=0)
    return folder / f"attempt-{number}"


def pack(folder: Path, name: str, have: dict[str, str], output: BinaryIO) -> None:
    """Write a snapshot of the run ``name`` into ``output``, as a tar archive.

    ``have`` has the versions of the client's checkpoints; the files of these are left
    out, and only their folders are in the archive.
    """
    outbox = _snapshot(folder, name, have)
    file = _BeatingFile(folder, output)
    with tarfile.open(fileobj=file, mode="w|gz", compresslevel=1) as tar:
        tar.add(outbox, ".", filter=lambda info: None if info.issym() else info)
    shutil.rmtree(outbox)


def _snapshot(folder: Path, name: str, have: dict[str, str]) -> Path:
    """Keep the run's files in ``outbox``, while training writes and removes them."""
    run, outbox = folder / "runs" / name, folder / "outbox"
    shutil.rmtree(outbox, ignore_errors=True)
    (outbox / "checkpoints").mkdir(parents=True)
    for path in sorted(run.glob("checkpoints/step-*")):
        if version(path) == have.get(path.name):
            (outbox / "checkpoints" / path.name).mkdir()
        elif version(path):
            _link(path, outbox / "checkpoints" / path.name)
    has_ended = (run / "result.json").exists()
    for path in run.iterdir() if run.exists() else ():
        is_wanted = has_ended or path.name != "agent"
        if is_wanted and not path.name.startswith((*_LEFT_OUT, ".", DATABASE)):
            _link(path, outbox / path.name)
    if (run / DATABASE).exists():  # after the checkpoints, which need it
        copy_database(run / DATABASE, outbox / DATABASE)
    _link(last_attempt(folder) / "log", outbox / LOG)
    return outbox


class _BeatingFile(io.RawIOBase):
    """Writes to a file; each write counts as a request of the client."""

    def __init__(self, folder: Path, file: BinaryIO) -> None:
        self._folder, self._file = folder, file

    def write(self, data: Any) -> int:
        beat(self._folder)
        return self._file.write(data)


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite database into one file, without a separate write-ahead log."""
    address = f"file:{source}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=30)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")


def is_locked(path: Path) -> bool:
    """Return whether another process holds the lock of a file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def version(checkpoint: Path) -> str:
    """Return a checkpoint's version, a digest of its ``state.json``; "" without one."""
    try:
        state = (checkpoint / "state.json").read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(state).hexdigest()[:12]


def _link(source: Path, target: Path) -> None:
    """Make ``target`` of hard links, which stay if ``source`` is deleted."""
    try:
        if source.is_dir():
            shutil.copytree(source, target, copy_function=os.link)
        else:
            os.link(source, target)
    except (OSError, shutil.Error):  # it was removed meanwhile
        shutil.rmtree(target, ignore_errors=True)


def _read_lines(path: Path, offset: int) -> bytes:
    """Return a file's complete lines from ``offset`` on; ``b""`` if there are none."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            found = file.read(_MOST)
            while b"\n" not in found and (more := file.read(_MOST)):
                found += more
    except FileNotFoundError:
        return b""
    return found[: found.rfind(b"\n") + 1]


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON into a file, atomically; standard library only."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value))
    new.replace(path)


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


def watch(attempt: Path, order: dict[str, Any]) -> None:
    """Run a :class:`Watchdog`, which holds the lock of its attempt."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (attempt / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (attempt / ".lock").rename(attempt / "lock")
        Watchdog(attempt, order).run()


def main(place: str, task: str, *words: str) -> None:
    """Do a task of the run at a path: poll, start NUMBER, watch NUMBER or pack RUN."""
    folder, data = Path(place), sys.stdin.buffer.read()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if task == "poll":
        sys.stdout.write(json.dumps(poll(folder, json.loads(data))))
    elif task == "start":
        start(folder, int(words[0]), data)
    elif task == "watch":
        watch(folder / f"attempt-{words[0]}", json.loads(data))
    else:
        pack(folder, words[0], json.loads(data), sys.stdout.buffer)


if __name__ == "__main__":
    os.umask(0o077)
    main(*sys.argv[1:])
