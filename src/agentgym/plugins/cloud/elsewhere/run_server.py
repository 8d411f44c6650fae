"""Answer the client's requests about one run on the remote machine.

The client starts this program over SSH. The program ends with the connection, and uses
only the standard library. A request is a line of JSON, followed by ``size`` bytes. An
answer has the same format. Files in the run's folder::

    inputs/                   the user's code, scenarios and files; training runs in it
    runs/NAME/                the run, as on the client
    attempt-1/                one process of training: progress.jsonl, log, outcome.json
    incoming/, outbox/        files in transfer
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
import tarfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO

BLOCK = 1 << 18
"""Size of a database's blocks in bytes; only changed blocks are sent."""
STALE_S = 45.0
"""Seconds without a request after which a client counts as disconnected."""
_REQUESTS = (
    *("hello", "have", "put", "unpack", "start", "poll", "stop", "reply", "files"),
    *("snapshot", "get", "finish"),
)
"""Names of the methods of :class:`RunServer` that a client may call."""
_WAIT_S = 1.0
_LOOK_S = 0.1
_MOST = 1 << 20
_LEFT_OUT = (
    *("checkpoints", "run.json", "report.md", "report.html", "result.json"),
    "agent",
)


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
        if op in ("put", "start"):
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
        return {**self._state(), "folder": str(self._folder)}

    def beat(self) -> None:
        """Record the current time as the time of the client's last request."""
        with suppress(FileNotFoundError):  # the run was removed
            (self._folder / "heartbeat").touch()

    def have(self, name: str) -> int:
        """Return the number of bytes of the file ``name`` that have been received."""
        path = self._inside("incoming", name)
        return path.stat().st_size if path.exists() else 0

    def put(self, name: str, offset: int, payload: bytes) -> int:
        """Write ``payload`` into a file from ``offset`` on; return the file's size."""
        path = self._inside("incoming", name)
        path.parent.mkdir(exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(offset)
            file.write(payload)
            file.truncate()
        return offset + len(payload)

    def unpack(self, name: str, to: str) -> None:
        """Replace the folder ``to`` by the content of the received archive ``name``."""
        archive, target = self._inside("incoming", name), self._inside(to)
        new = target.with_name(f".{target.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(new, filter="data")
            shutil.rmtree(target, ignore_errors=True)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            archive.unlink(missing_ok=True)

    def start(self, number: int, payload: bytes) -> dict[str, Any]:
        """Start training in a process that continues without this connection.

        ``number`` counts the starts of the run. If this number was already started,
        nothing is started, so the client may repeat its request. The process gets
        ``payload`` over a pipe.
        """
        if self._last_attempt() >= number:
            return self._state()
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
        return self._state()

    def poll(self, offset: int, log: int) -> tuple[dict[str, Any], bytes]:
        """Return the run's state, and the bytes of new events and then of new output.

        If there is neither, wait up to 1 s. The client already has ``offset`` bytes of
        events and ``log`` bytes of output.
        """
        until = time.monotonic() + _WAIT_S
        while True:
            # Read before the events, so that none is missed at the end.
            state = self._state()
            events = _read_lines(self._attempt() / "progress.jsonl", offset)
            said = _read(self._attempt() / "log", log)
            is_over = state["state"] != "running" or time.monotonic() > until
            if events or said or is_over:
                return {**state, "events": len(events)}, events + said
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Request that training stops, as after Ctrl-C."""
        (self._attempt() / "stop").touch()

    def reply(self, number: int, value: Any) -> None:
        """Write the user's answer to the run's question ``number``."""
        write_json(self._attempt() / f"reply-{number}.json", value)

    def files(self, run: str, have: dict[str, str]) -> dict[str, Any]:
        """List the run's files; keep new checkpoints until the client has them."""
        folder = self._inside("runs", run)
        outbox = self._folder / "outbox"
        staged: dict[str, dict[str, int]] = {}
        there = sorted(path.name for path in folder.glob("checkpoints/step-*"))
        versions = {name: version(folder / "checkpoints" / name) for name in there}
        wanted = {
            f"{n}-{v}": n for n, v in versions.items() if v not in ("", have.get(n))
        }
        for old in outbox.glob("step-*"):
            if old.name not in wanted:
                shutil.rmtree(old)
        for stage, name in wanted.items():
            if not (outbox / stage).exists():
                _link_tree(folder / "checkpoints" / name, outbox / stage)
            if (outbox / stage).exists():
                staged[stage] = _sizes(outbox / stage)
        others = {
            name: size
            for name, size in _sizes(folder).items()
            if name.partition("/")[0] not in _LEFT_OUT
            and not name.startswith((".", "rollouts.db"))
        }
        result, record = folder / "result.json", folder / "run.json"
        has_ended = result.exists()
        return {
            "checkpoints": staged,
            "all": there,
            "others": others,
            "agent": _sizes(folder / "agent") if has_ended else {},
            "result": result.read_text(encoding="utf-8") if has_ended else None,
            "record": json.loads(record.read_bytes()) if record.exists() else None,
        }

    def snapshot(self, run: str) -> dict[str, Any]:
        """Copy the database to ``outbox``; return its size and its blocks' hashes."""
        source = self._inside("runs", run) / "rollouts.db"
        if not source.exists():
            return {"size": 0, "blocks": []}
        target = self._folder / "outbox" / "rollouts.db"
        target.parent.mkdir(exist_ok=True)
        copy_database(source, target)
        return {"size": target.stat().st_size, "blocks": digests(target)}

    def get(self, path: str, offset: int, length: int) -> tuple[Any, bytes]:
        """Return None, and at most ``length`` bytes of a file from ``offset`` on."""
        return None, _read(self._inside(path), offset, min(length, 8 * _MOST))

    def finish(self) -> None:
        """Record that the client has all files; then :func:`serve` calls `remove`."""
        self.is_finished = True

    def remove(self) -> None:
        """Remove the run's folder, and allow a rented machine to end itself."""
        with suppress(OSError):
            (self._attempt() / "fetched").touch()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _state(self) -> dict[str, Any]:
        """Return the last training process: its state, its number and its outcome.

        The state is ``none`` before the first process. Then it is ``running``,
        ``ended``, or ``lost`` if the process died without writing an outcome.
        """
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
    target.unlink(missing_ok=True)
    address = f"file:{source}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=30)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode=DELETE")


def digests(path: Path) -> list[str]:
    """Return the hash of each block of :data:`BLOCK` bytes in a file."""
    with path.open("rb") as file:
        blocks = iter(lambda: file.read(BLOCK), b"")
        return [hashlib.blake2b(block, digest_size=16).hexdigest() for block in blocks]


def serve(there: RunServer, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the client disconnects or has fetched all files."""
    while not there.is_finished and (line := questions.readline()):
        question = json.loads(line)
        payload = questions.read(question.pop("size", 0))
        try:
            found, body = there.answer(question, payload)
            head = {"found": found, "size": len(body)}
        except Exception as error:  # noqa: BLE001 - the client raises it
            kind = "busy" if isinstance(error, BusyError) else type(error).__name__
            head, body = {"error": str(error), "kind": kind}, b""
        else:
            there.beat()
        try:
            answers.write(json.dumps(head).encode() + b"\n" + body)
            answers.flush()
        finally:
            # After the answer: a rented machine may end right after this.
            if there.is_finished:
                there.remove()


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
    """Return a checkpoint's version, a digest of its ``state.json``."""
    try:
        state = (checkpoint / "state.json").read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(state).hexdigest()[:12]


def _link_tree(source: Path, target: Path) -> None:
    """Create ``target`` with hard links to the files in ``source``.

    So the files remain if ``source`` is deleted. Do nothing if linking fails, e.g. if
    ``source`` does not exist.
    """
    new = target.with_name(f".{target.name}")
    shutil.rmtree(new, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    try:
        shutil.copytree(source, new, copy_function=os.link)
        new.rename(target)
    except (OSError, shutil.Error):
        shutil.rmtree(new, ignore_errors=True)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each file in a folder, by relative path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(folder))] = path.stat().st_size
    return found


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
    """Write a value as JSON into a file, atomically.

    The function ``core.files.write_json`` is not used, since this module may only
    import the standard library.
    """
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value))
    new.replace(path)


if __name__ == "__main__":
    os.umask(0o077)
    place = Path(sys.argv[1]).expanduser().absolute()
    serve(RunServer(place), sys.stdin.buffer, sys.stdout.buffer)
