"""Answer the client's requests about one run on the remote machine.

The client starts this program over SSH; it ends with the connection. It uses only the
standard library. A request is a line of JSON, followed by ``size`` bytes, and so is an
answer. Files in the run's folder::

    inputs/                   the user's code, scenarios and files; training runs in it
    runs/NAME/                the run, as on the client
    attempt-1/                one process of training: progress.jsonl, log, outcome.json
    outbox/                   a snapshot of the run, while the client fetches it
    heartbeat, client.json    time of the client's last request; the client's id
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO

BLOCK = 4 << 20
"""Size of a file's blocks in bytes; only blocks that the client lacks are sent."""
STALE_S = 45.0
"""Seconds without a request after which a client counts as disconnected."""
DATABASE = "rollouts.db"
_REQUESTS = ("hello", "start", "poll", "stop", "reply", "stage", "get", "finish")
"""Names of the methods of :class:`RunServer` that a client may call."""
_WAIT_S = 1.0
_LOOK_S = 0.1
_MOST = 1 << 20
_LEFT_OUT = ("checkpoints", "run.json", "report.md", "report.html", "result.json")


class RunServer:
    """Answers requests about one run, which has its own folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.is_finished = False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def answer(self, question: dict[str, Any], payload: bytes) -> tuple[Any, bytes]:
        """Call the method that a request names; return its answer and bytes to send."""
        named = dict(question)
        op = named.pop("op")
        if op not in _REQUESTS:
            raise KeyError(op)
        if op == "start":
            named["payload"] = payload
        found = getattr(self, op)(**named)
        return found if isinstance(found, tuple) else (found, b"")

    def hello(self, client: str) -> dict[str, Any]:
        """Register the client with the id ``client``, and return the run's state."""
        path = self._folder / "client.json"
        with suppress(OSError, ValueError):
            other = json.loads(path.read_text(encoding="utf-8"))
            heard = time.time() - (self._folder / "heartbeat").stat().st_mtime
            if _is_serving(other["pid"], self._folder):
                if other["client"] != client and heard < STALE_S:
                    raise BusyError("another client follows this run at the moment")
                os.kill(other["pid"], signal.SIGTERM)
        write_json(path, {"client": client, "pid": os.getpid()})
        self.beat()
        return self._state()

    def beat(self) -> None:
        """Record the current time as the time of the client's last request."""
        with suppress(FileNotFoundError):  # the run was removed
            (self._folder / "heartbeat").touch()

    def start(self, number: int, payload: bytes) -> None:
        """Start training in a process that continues without this connection.

        ``number`` counts the starts of the run; the same number starts nothing twice,
        so the client may repeat its request. The process gets ``payload`` by a pipe.
        """
        if self._last_attempt() >= number:
            return
        attempt = self._folder / f"attempt-{number}"
        attempt.mkdir()
        with (attempt / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "agentgym.plugins.cloud.watchdog", str(attempt)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(payload)
        while process.poll() is None and not (attempt / "lock").exists():
            time.sleep(_LOOK_S)

    def poll(self, offset: int) -> tuple[dict[str, Any], bytes]:
        """Return the run's state, and the progress events from a byte ``offset`` on."""
        until = time.monotonic() + _WAIT_S
        while True:
            state = self._state()  # before the events, so that none is missed
            events = _read_lines(self._attempt() / "progress.jsonl", offset)
            is_over = state["state"] != "running" or time.monotonic() > until
            if events or is_over:
                return state, events
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Request that training stops, as after Ctrl-C."""
        (self._attempt() / "stop").touch()

    def reply(self, number: int, value: Any) -> None:
        """Write the user's answer to the run's question ``number``."""
        write_json(self._attempt() / f"reply-{number}.json", value)

    def stage(self, run: str, have: dict[str, str]) -> dict[str, Any]:
        """Keep the run's files in ``outbox``; return the hashes of their blocks."""
        source, outbox = self._inside("runs", run), self._folder / "outbox"
        shutil.rmtree(outbox, ignore_errors=True)
        outbox.mkdir()
        there = sorted(source.glob("checkpoints/step-*"))
        result, record = source / "result.json", source / "run.json"
        has_ended = result.exists()
        for path in there:
            if version(path) not in ("", have.get(path.name)):
                _link(path, outbox / "checkpoints" / path.name)
        for path in source.iterdir() if source.exists() else ():
            is_wanted = has_ended or path.name != "agent"
            if is_wanted and not path.name.startswith((*_LEFT_OUT, ".", DATABASE)):
                _link(path, outbox / path.name)
        if (source / DATABASE).exists():  # after the checkpoints, which need it
            copy_database(source / DATABASE, outbox / DATABASE)
        return {
            "files": {
                str(path.relative_to(outbox)): digests(path)
                for path in sorted(outbox.rglob("*"))
                if path.is_file() and not path.is_symlink()
            },
            "all": [path.name for path in there],
            "result": result.read_text(encoding="utf-8") if has_ended else None,
            "record": json.loads(record.read_bytes()) if record.exists() else None,
        }

    def get(self, path: str, offset: int, length: int) -> tuple[None, bytes]:
        """Return at most ``length`` bytes of a file from ``offset`` on."""
        return None, _read(self._inside(path), offset, min(length, BLOCK))

    def finish(self) -> None:
        """Record that the client has all files; then :func:`serve` calls `remove`."""
        self.is_finished = True

    def remove(self) -> None:
        """Remove the run's folder, and allow a rented machine to end itself."""
        with suppress(OSError):
            (self._attempt() / "fetched").touch()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _state(self) -> dict[str, Any]:
        """Return the last training process: its state, its number and its outcome."""
        attempt, outcome = self._attempt(), None
        state = "none"
        if attempt.name != "attempt-0":
            is_alive = is_locked(attempt / "lock")
            with suppress(OSError, ValueError):
                outcome = json.loads((attempt / "outcome.json").read_bytes())
            is_over = not is_alive or (attempt / "over").exists()
            state = "running" if is_alive else "lost"
            state = "ended" if is_over and outcome is not None else state
        return {"state": state, "attempt": self._last_attempt(), "outcome": outcome}

    def _last_attempt(self) -> int:
        names = (path.name for path in self._folder.glob("attempt-*"))
        return max((int(name.partition("-")[2]) for name in names), default=0)

    def _attempt(self) -> Path:
        return self._folder / f"attempt-{self._last_attempt()}"

    def _inside(self, *parts: str) -> Path:
        path = Path(os.path.normpath(self._folder.joinpath(*parts)))
        if not path.is_relative_to(self._folder) or path == self._folder:
            raise ValueError(f"{'/'.join(parts)!r} is outside of the run's folder")
        return path


class BusyError(Exception):
    """Another client is connected to the run."""


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite database into one file, without a separate write-ahead log."""
    address = f"file:{source}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=30)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")


def digests(path: Path) -> tuple[int, list[str]]:
    """Return a file's size, and the hash of each of its blocks."""
    size, found = 0, []
    with suppress(FileNotFoundError), path.open("rb") as file:
        while block := file.read(BLOCK):
            size += len(block)
            found.append(hashlib.blake2b(block, digest_size=16).hexdigest())
    return size, found


def serve(server: RunServer, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the client disconnects or has fetched all files."""
    while not server.is_finished and (line := questions.readline()):
        question = json.loads(line)
        payload = questions.read(question.pop("size", 0))
        try:
            found, body = server.answer(question, payload)
            head = {"found": found, "size": len(body)}
        except Exception as error:  # noqa: BLE001 - the client raises it
            kind = "busy" if isinstance(error, BusyError) else type(error).__name__
            head, body = {"error": str(error), "kind": kind}, b""
        else:
            server.beat()
        try:
            answers.write(json.dumps(head).encode() + b"\n" + body)
            answers.flush()
        finally:
            # After the answer: a rented machine may end right after this.
            if server.is_finished:
                server.remove()


def _is_serving(pid: int, folder: Path) -> bool:
    """Return whether the process ``pid`` is another server of the same run."""
    if pid == os.getpid():
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(folder).encode() in words


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
    except (OSError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)


def _read(path: Path, offset: int, most: int = _MOST) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(most)
    except FileNotFoundError:
        return b""


def _read_lines(path: Path, offset: int) -> bytes:
    """Return a file's complete lines from ``offset`` on; ``b""`` if there are none."""
    most = _MOST
    while b"\n" not in (found := _read(path, offset, most)) and len(found) == most:
        most *= 4
    return found[: found.rfind(b"\n") + 1]


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON into a file, atomically; standard library only."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value))
    new.replace(path)


if __name__ == "__main__":
    os.umask(0o077)
    place = Path(sys.argv[1]).expanduser().absolute()
    serve(RunServer(place), sys.stdin.buffer, sys.stdout.buffer)
