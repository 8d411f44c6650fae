"""Write files atomically, clean up temporary folders, and retry on full disks."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import Any

from agentgym.errors import UsageError
from agentgym.security.redaction import Redactor

WAIT_S = 10.0
"""Seconds that a run waits for disk space or a failing disk before it ends."""
BEAT_S = 0.5
"""Seconds between two attempts to write, and between two calls of a ``Beat``."""

Beat = Callable[[str | None], None]
"""A callback that a waiting function calls regularly.

Its argument is the reason why writing to the disk is delayed; None if writing works.
The callback may raise an exception to end the waiting.
"""

_NUMBERS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than allowed",
    errno.EIO: "the disk fails",
}
_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or fails",
    sqlite3.SQLITE_BUSY: "another program has locked the database",
    sqlite3.SQLITE_LOCKED: "another program has locked the database",
}
_MOST_BYTES = 200
"""Maximum bytes of a name. File systems allow 255; temporary names add some bytes."""
_PRIVATE, _USUAL = 0o600, 0o666
_UNLOCKED_S = 1.0
"""Seconds after its creation in which a temporary file may not be locked yet."""
_GRACE_S = 60.0
"""Seconds after its creation in which a temporary folder may not be locked yet."""


def check_name(name: str) -> str:
    """Check that ``name`` is a valid file name on every file system, and return it."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            "a name has letters, digits, '_', '-' and '.', and begins with none of "
            "the last two"
        )
    if (size := len(name.encode())) > _MOST_BYTES:
        raise ValueError(f"the name takes {size} bytes, and {_MOST_BYTES} are the most")
    return name


def write_atomically(path: Path, text: str, *, private: bool = True) -> None:
    """Write ``text`` to a file atomically, with secrets redacted.

    An existing file keeps its permissions. If ``private`` is true, only this user may
    read a new file.
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
    """Write ``value`` as JSON to a file atomically, with secrets redacted."""
    value = Redactor.of_environment().json(value)
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deep", "", 0) from None


def whole_text(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded as UTF-8, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_below(name: str) -> bool:
    """Return whether a relative path stays inside its base folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder; rename it to ``path`` if the block succeeds."""
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


def remove_folder(path: Path) -> None:
    """Remove a folder if it exists; other processes find all of it or nothing."""
    with suppress(FileNotFoundError):
        rmtree(path.replace(_temporary(path, "old")), ignore_errors=True)


def _temporary(path: Path, kind: str) -> Path:
    """Return a new temporary path next to ``path``; ``kind`` is its suffix."""
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.{kind}")


def _lock(descriptor: int) -> None:
    """Mark a temporary file or folder as in use, if the file system supports locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _remove_left(path: Path, kind: str) -> None:
    """Remove temporary files or folders that a killed process left next to ``path``."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.{kind}"):
        _remove_unlocked(left, _UNLOCKED_S)


def _remove_unlocked(left: Path, grace_s: float) -> None:
    """Remove this user's temporary file or folder if no process has locked it."""
    # A process locks its file a little later than it creates it, hence the grace
    # period.
    with suppress(OSError, RecursionError):
        lock = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found = os.fstat(lock)
            is_ours = os.geteuid() in (0, found.st_uid)
            if not is_ours or time.time() - found.st_mtime < grace_s:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if left.is_dir():
                rmtree(left)
            else:
                left.unlink()
        finally:
            os.close(lock)


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Create a folder below ``TMPDIR``; remove it at the end of the block.

    Folders of the same ``kind`` that a killed process left are removed too.
    """
    prefix = f"agentgym-{kind}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*/"):
        _remove_unlocked(left, _GRACE_S)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
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
    """Return why agents cannot be saved in ``AGENTGYM_HOME``; None if they can."""
    state = agents_folder().parent
    if (why := folder_problem(state)) is None:
        return None
    return f"{state} is not writable; set AGENTGYM_HOME to a folder that is ({why})"


def folder_problem(folder: Path) -> str | None:
    """Return why a folder cannot be written or made; None if it can."""
    # Permissions say little to root, and nothing of file systems such as /proc.
    while not folder.exists():
        folder = folder.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".agentgym-", dir=folder))
    except OSError as error:
        return error.strerror or str(error)
    return None


def require_writable_state() -> None:
    """Raise UsageError if trained agents could not be saved."""
    if problem := state_problem():
        raise UsageError(f"Agents cannot be saved: {problem}.")


def no_beat(stalled: str | None) -> None:
    """Do nothing. Use it as a :data:`Beat` if the waiting need not be ended early."""


def disk_trouble(error: BaseException | None) -> str | None:
    """Return the disk problem that caused an error, or None if there is none."""
    while error is not None:
        message = None
        if isinstance(error, OSError):
            message = _NUMBERS.get(error.errno or 0)
        elif isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", None)
            message = None if code is None else _SQLITE.get(code & 0xFF)
        # Libraries put the system's message into errors of their own.
        if message is None and "No space left on device" in str(error):
            message = _NUMBERS[errno.ENOSPC]
        if message is not None:
            return message
        error = error.__cause__ or error.__context__
    return None


def patiently(write: Callable[[], None], beat: Beat, wait_s: float = WAIT_S) -> None:
    """Call ``write``; retry while the disk is full or fails, up to ``wait_s`` seconds.

    ``beat`` is called after each attempt with the disk problem, or with None after
    success.
    """
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


def digest(parts: Iterable[str | bytes]) -> str:
    """Return a digest of texts in order."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8) + data)
    return found.hexdigest()[:16]
