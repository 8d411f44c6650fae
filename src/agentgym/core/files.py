"""Write files atomically, clean up temporary folders, and retry on full disks.

Text that comes from outside is read here too: :func:`parse_json`, :func:`whole_text`.
"""

import errno
import fcntl
import glob
import json
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import Any

from agentgym.errors import UsageError
from agentgym.security.redaction import Redactor

WAIT_S = 10.0
"""Seconds that a run waits for disk space, or for a failing disk, before it ends."""
BEAT_S = 0.5
"""Seconds between two attempts to write, and between two calls of a Beat."""

Beat = Callable[[str | None], None]
"""Called at each attempt with the reason for waiting, or None; an exception from it
ends the waiting.
"""

_NUMBERS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than allowed",
    errno.EIO: "the disk fails",
}
_TEXTS = {"No space left on device": "the disk is full"}
_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or fails",
    sqlite3.SQLITE_BUSY: "another program has locked the database",
    sqlite3.SQLITE_LOCKED: "another program has locked the database",
}
_MOST_BYTES = 200
"""Most bytes of a name: file systems take 255, and temporary names are longer."""
_PRIVATE, _USUAL = 0o600, 0o666
_UNLOCKED_S = 1.0
"""Age in seconds up to which a temporary file may not be locked yet."""
_GRACE_S = 60.0
"""Age in seconds up to which a temporary folder may not be locked yet."""


def check_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a file or folder on every file system.

    Raises:
        ValueError: The name is not allowed; the message does not quote it.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            "a name has letters, digits, '_', '-' and '.', and begins with none of "
            "the last two"
        )
    if (size := len(name.encode())) > _MOST_BYTES:
        raise ValueError(f"the name takes {size} bytes, and {_MOST_BYTES} are the most")
    return name


def write_atomically(path: Path, text: str, *, private: bool = True) -> None:
    """Replace ``path`` by ``text`` without secrets; durable when this returns.

    Args:
        path: The file; if it exists, it keeps its mode.
        text: Its new content.
        private: Whether only this user may read a new file; else the umask decides.
    """
    text = Redactor.of_environment().written(text)
    mode = _PRIVATE if private else _USUAL
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
    _remove_left(path, "tmp")
    temporary = _temporary(path, "tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            _lock(file.fileno())
            if path.exists():
                os.fchmod(file.fileno(), mode)  # regardless of the umask
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON without secrets, atomically."""
    value = Redactor.of_environment().json(value)
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text.

    Raises:
        json.JSONDecodeError: It is not JSON, or is nested too deeply for Python.
        UnicodeDecodeError: It is not UTF-8.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deep", "", 0) from None


def whole_text(text: str) -> str:
    """Replace each unpaired half of a surrogate pair by U+FFFD.

    Such a half is not a character, so it cannot be encoded.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_below(name: str) -> bool:
    """Return whether a relative path stays inside its base folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` if the block succeeds."""
    _remove_left(path, "tmp")
    temporary = _temporary(path, "tmp")
    temporary.mkdir(parents=True)
    lock = os.open(temporary, os.O_RDONLY)
    try:
        _lock(lock)
        yield temporary
        old = _temporary(path, "old")
        if path.exists():
            path.replace(old)
        temporary.replace(path)
    except BaseException:
        rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    sync_folder(path.parent)
    rmtree(old, ignore_errors=True)
    _remove_left(path, "old")


def _temporary(path: Path, kind: str) -> Path:
    """Return a temporary name next to ``path``, for its new or its old content."""
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.{kind}")


def _lock(descriptor: int) -> None:
    """Lock a temporary file or folder as in use, if the file system supports locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _remove_left(path: Path, kind: str) -> None:
    """Remove the temporary files that a killed process left next to ``path``."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.{kind}"):
        with suppress(OSError, RecursionError):
            lock = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if time.time() - os.fstat(lock).st_mtime < _UNLOCKED_S:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if left.is_dir():
                    rmtree(left)
                else:
                    left.unlink()
            finally:
                os.close(lock)


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Yield a new folder below ``TMPDIR``, removed at the end of the block.

    It is locked while its process lives. The next call removes folders of this ``kind``
    that a killed process left.
    """
    prefix = f"agentgym-{kind}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    """Remove one of our temporary folders if no process has locked it."""
    with suppress(OSError, RecursionError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            found = os.fstat(lock)
            is_ours = os.geteuid() in (0, found.st_uid)
            if not is_ours or time.time() - found.st_mtime < _GRACE_S:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(folder)
        finally:
            os.close(lock)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def agents_folder() -> Path:
    """Return the folder of saved agents, below ``AGENTGYM_HOME``."""
    state = os.environ.get("AGENTGYM_HOME", "~/.agentgym")
    return Path(state).expanduser() / "agents"


def state_problem() -> str | None:
    """Return the reason why agents cannot be saved in ``AGENTGYM_HOME``, or None."""
    state = place = agents_folder().parent
    while not place.exists():
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK):
        return None
    return f"{state} is not writable; set AGENTGYM_HOME to a folder that is"


def require_writable_state() -> None:
    """Check that trained agents can be saved, before anything is trained.

    Raises:
        UsageError: ``AGENTGYM_HOME`` cannot be written.
    """
    if problem := state_problem():
        raise UsageError(f"Agents cannot be saved: {problem}.")


def no_beat(stalled: str | None) -> None:
    """Do nothing: a Beat that waits without a limit."""


def disk_trouble(error: BaseException | None) -> str | None:
    """Return the disk's problem as a sentence; None if the disk is not the cause.

    The text is searched, since libraries raise their own errors with the system's text.
    """
    while error is not None:
        message = None
        if isinstance(error, OSError):
            message = _NUMBERS.get(error.errno or 0)
        elif isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", None)
            message = None if code is None else _SQLITE.get(code & 0xFF)
        message = message or next(
            (t for s, t in _TEXTS.items() if s in str(error)), None
        )
        if message is not None:
            return message
        error = error.__cause__ or error.__context__
    return None


def patiently(write: Callable[[], None], beat: Beat, wait_s: float = WAIT_S) -> None:
    """Call ``write``; retry for ``wait_s`` seconds while the disk is full or fails."""
    until = time.monotonic() + wait_s
    while True:
        try:
            write()
        except Exception as error:
            why = disk_trouble(error)
            if why is None or time.monotonic() >= until:
                raise
        else:
            beat(None)
            return
        beat(why)
        time.sleep(BEAT_S)
