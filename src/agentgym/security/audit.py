"""Write the audit log: executed commands and their callers, one JSON object per line.

:func:`asking` sets fields that identify the caller, and :func:`note` logs a command
with them. All processes of a run append to the same file. When it is too large, a new
file is begun, and the oldest is removed.
"""

import fcntl
import getpass
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from agentgym.security.files import make_private_folder, private
from agentgym.security.redaction import Redactor, beginning, get_logger, without_secrets

FILE = "audit.jsonl"
# Name of the log of rented machines, on the computer that rents them. `FILE` is
# the name of the log of commands, on the machine that executes them.
MACHINES_FILE = "audit-machines.jsonl"
MOST_BYTES = 32 << 20  # size of a log file, in bytes, at which a new file begins
KEPT = 8  # number of log files to keep, the newest included; older ones are removed
_HEAD = 200
_DIGITS = 16
_TEXTS = frozenset({"command", "error", "files", "more_files", "script"})
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC

logger = get_logger(__name__)


class AuditLog:
    """Appends to the audit log of a run, or of actions outside of runs. Thread-safe.

    The file and its folder are created for the first entry. If writing fails, e.g. on a
    full disk, the caller gets no exception. Instead the failure is logged, and the
    number of lost entries is written later. With ``private``, entries have no texts:
    neither commands nor the beginnings of scripts, and no names of files.
    """

    def __init__(
        self, path: Path, most_bytes: int = MOST_BYTES, *, private: bool = False
    ) -> None:
        self.path = path
        self._left_out = _TEXTS if private else frozenset[str]()
        self._most_bytes = most_bytes
        self._file = -1
        self._owner = 0
        self._lost = 0
        self._lock = threading.Lock()
        self._redactor = Redactor.of_environment()

    def write(self, what: str, **facts: Any) -> None:
        """Append an entry: the time, the action's name ``what``, and its ``facts``."""
        with self._lock:
            try:
                self._open()
                if self._lost:
                    self._append({"what": "lost", "lines": self._lost})
                    self._lost = 0
                self._append({"what": what, **facts})
            except OSError as error:
                if not self._lost:
                    message = "the audit log %s cannot be written: %s"
                    logger.error(message, self.path, error)
                self._lost += 1

    def _append(self, facts: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat("T", "milliseconds")
        known = {
            name: value
            for name, value in facts.items()
            if value is not None and name not in self._left_out
        }
        line = json.dumps({"at": now, "process": self._owner, **known}, default=str)
        os.write(self._file, self._redactor.written(line).encode() + b"\n")
        if os.fstat(self._file).st_size >= self._most_bytes:
            self._turn_over()

    def _open(self) -> None:
        """Open the file in this process; its first entry has command and user."""
        if self._file >= 0 and self._owner == os.getpid():
            return
        self._redactor = Redactor.of_environment()
        make_private_folder(self.path.parent)
        self._file = private(self.path, _FLAGS)
        self._owner = os.getpid()
        self._append(
            {
                "what": "began",
                "command": head(" ".join(without_secrets(sys.argv))),
                "user": _user(),
                "host": os.uname().nodename,
                "parent": os.getppid(),
            }
        )

    def _turn_over(self) -> None:
        """Begin a new file, and rename the full one, unless another process has."""
        old = self._file
        fcntl.flock(old, fcntl.LOCK_EX)  # held until it is closed
        try:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(old), os.stat(self.path)):
                    for older, newer in pairwise(_files(self.path)):
                        with suppress(FileNotFoundError):
                            newer.rename(older)
            self._file = private(self.path, _FLAGS)
        finally:
            os.close(old)


_LOG: ContextVar[AuditLog | None] = ContextVar("agentgym_audit", default=None)
_ASKER: ContextVar[dict[str, Any]] = ContextVar("agentgym_asker")


@contextmanager
def audited(log: AuditLog) -> Iterator[AuditLog]:
    """Context manager that writes all audit entries of the block to ``log``."""
    token = _LOG.set(log)
    try:
        yield log
    finally:
        _LOG.reset(token)


def audit_into(path: Path, *, private: bool = False) -> None:
    """Write all further audit entries of this context (contextvars) to a file."""
    _LOG.set(AuditLog(path, private=private))


@contextmanager
def asking(**who: Any) -> Iterator[None]:
    """Context manager that adds fields to all audit entries of the block."""
    token = _ASKER.set({**_ASKER.get({}), **who})
    try:
        yield
    finally:
        _ASKER.reset(token)


def note(what: str, **facts: Any) -> None:
    """Write an action with the fields from :func:`asking`, if an audit log is open."""
    if (log := _LOG.get()) is not None:
        log.write(what, **_ASKER.get({}), **facts)


def log_or_none() -> AuditLog | None:
    """Return the audit log that is open in this context, or None."""
    return _LOG.get()


def digest(value: Any) -> str:
    """Return a short hash (16 hexadecimal digits) of a text or a JSON value."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    import hashlib  # it loads OpenSSL

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def head(text: str) -> str:
    """Return the first 200 characters of a text on one line, without secrets."""
    return " ".join(beginning(text, 2 * _HEAD).split())[:_HEAD]


def default_log() -> Path:
    """Return the path of the audit log for actions outside of runs."""
    home = os.environ.get("AGENTGYM_HOME", "~/.agentgym")
    try:
        return Path(home).expanduser() / FILE
    except RuntimeError:  # the user has no home folder, so nothing can be written in it
        return Path(os.devnull) / FILE


def _files(newest: Path) -> list[Path]:
    """Return the paths of a log's files, the oldest first; some may not exist."""
    older = [newest.with_name(f"{newest.name}.{n}") for n in range(KEPT - 1, 0, -1)]
    return [*older, newest]


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of an audit log, the oldest first.

    Skip truncated lines. ``path`` is the newest file of the log, or a run's folder with
    two logs.
    """
    logs = [path / FILE, path / MACHINES_FILE] if path.is_dir() else [path]
    files = chain.from_iterable(map(_files, logs))
    entries = list(chain.from_iterable(map(_lines, files)))
    yield from sorted(entries, key=lambda entry: str(entry.get("at", "")))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with suppress(FileNotFoundError), file.open("rb") as lines:
        for line in lines:
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # this machine has no name for the user
        return str(os.geteuid())
