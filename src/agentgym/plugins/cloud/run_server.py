"""The remote side of a run: start its training, report its progress, pack its files.

The client starts this program over SSH. It uses only the standard library. Files in the
run's folder::

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
import sqlite3
import subprocess
import sys
import tarfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO

DATABASE = "rollouts.db"
LOG = "elsewhere.log"
"""File with the output of the remote training, in the client's run folder."""
STALE_S = 45.0
"""Seconds without a request after which a client counts as disconnected."""
_LOOK_S = 0.1
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
            [sys.executable, "-m", "agentgym.plugins.cloud.watchdog", str(attempt)],
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
        tar.add(outbox, ".")
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


def main(place: str, task: str, *words: str) -> None:
    """Do one of ``poll``, ``start NUMBER`` and ``pack RUN`` for the run at a path."""
    folder, data = Path(place), sys.stdin.buffer.read()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if task == "poll":
        sys.stdout.write(json.dumps(poll(folder, json.loads(data))))
    elif task == "start":
        start(folder, int(words[0]), data)
    else:
        pack(folder, words[0], json.loads(data), sys.stdout.buffer)


if __name__ == "__main__":
    os.umask(0o077)
    main(*sys.argv[1:])
