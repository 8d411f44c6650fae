"""Database: SQLite written behind the caller's back, in groups, by one thread."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentgym.errors import RolloutError

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE rollouts (
    rollout_id TEXT PRIMARY KEY,
    terminal_order INTEGER,
    rollout TEXT NOT NULL,
    is_train INTEGER AS (json_extract(rollout, '$.is_train')),
    step INTEGER AS (json_extract(rollout, '$.metadata.step')),
    status TEXT AS (json_extract(rollout, '$.status')),
    state TEXT AS (json_extract(rollout, '$.status.state'))
);
CREATE INDEX rollouts_by_state ON rollouts (state);
CREATE INDEX rollouts_by_end ON rollouts (terminal_order)
    WHERE terminal_order IS NOT NULL;
CREATE TABLE events (
    event_type TEXT NOT NULL,
    rollout_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    timestamp REAL NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX events_by_attempt ON events (rollout_id, attempt_id);
CREATE TABLE models (
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    server TEXT NOT NULL,
    PRIMARY KEY (model, endpoint)
);
"""
_MAX_PENDING = 20_000

Params = Sequence[Any] | Mapping[str, Any]
Write = tuple[str, Params | Callable[[], Params]]
"""A statement, and its parameters or what computes them in the writing thread."""


class Database:
    """One SQLite file (WAL), or a database in memory.

    Writes are queued and committed together every ``group_commit_s``; the writes of
    one :meth:`submit` are committed together or not at all. A killed process loses
    at most what was not flushed; a power cut may also lose the last commits, but
    leaves the file consistent (``synchronous=NORMAL``). Once a write has failed,
    every method but :meth:`read` raises RolloutError, which says why.

    Args:
        path: The file, made if missing; None keeps everything in memory.
        group_commit_s: Longest time a write waits for others.

    Raises:
        RolloutError: The file is no such database, corrupt, or of another version.
    """

    def __init__(self, path: Path | None, *, group_commit_s: float) -> None:
        self.path = path
        self._group_commit_s = group_commit_s
        self._connection = self._open()
        self._connection_lock = threading.Lock()
        self._reader, self._reader_lock = self._connection, self._connection_lock
        if path is not None:
            self._reader, self._reader_lock = self._connect(), threading.Lock()
        self._lock = threading.Lock()
        self._pending: list[Write] = []
        self._hurry = threading.Event()
        self._error: RolloutError | None = None
        self._is_closed = False
        self._writer = ThreadPoolExecutor(1, "agentgym-store")
        self._group = self._writer.submit(lambda: None)

    def submit(self, *writes: Write) -> None:
        """Queue writes that belong together; blocks while too many wait."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise RolloutError("The rollout store is closed.")
            if not self._pending:
                self._group = self._writer.submit(self._commit_group)
            self._pending += writes
        if len(self._pending) > _MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Return once everything submitted before is committed."""
        self._hurry.set()
        self._group.result()

    def read(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; what is not flushed is not seen.

        Raises:
            RolloutError: The database cannot be read.
        """
        with self._reader_lock:
            try:
                return self._reader.execute(sql, params).fetchall()
            except sqlite3.Error as error:
                raise self._explained(error) from error

    def close(self) -> None:
        """Commit what is queued and close the file."""
        with self._lock:
            self._is_closed = True
        try:
            self.flush()
        finally:
            self._writer.shutdown()
            with self._reader_lock:
                self._reader.close()
            self._connection.close()

    def _commit_group(self) -> None:
        """Wait for more writes until the group is due or somebody asks; commit it."""
        self._hurry.wait(self._group_commit_s)
        with self._lock:
            batch, self._pending = self._pending, []
            self._hurry.clear()
            if self._error is not None:
                raise self._error
        with self._connection_lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                for sql, params in batch:
                    row = params() if callable(params) else params
                    self._connection.execute(sql, row)
                self._connection.execute("COMMIT")
            except Exception as error:  # also of what computes the parameters
                logger.exception("a group of writes failed")
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._error = self._explained(error)
                raise self._error from error

    def _connect(self) -> sqlite3.Connection:
        path = self.path or ":memory:"
        try:
            return sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _open(self) -> sqlite3.Connection:
        """Open the file for writing, made, or checked to be ours and whole."""
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            ((version,),) = connection.execute("PRAGMA user_version")
            ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
            if version == 0 and tables:
                told = f"{self.path} is an SQLite file but no rollout store."
                raise RolloutError(told)
            if version == 0:
                connection.executescript(
                    f"BEGIN;{_SCHEMA}PRAGMA user_version={SCHEMA_VERSION};COMMIT;"
                )
            elif version != SCHEMA_VERSION:
                raise RolloutError(
                    f"The rollout store {self.path} has version {version}; this "
                    f"agentgym reads {SCHEMA_VERSION}. Upgrade agentgym, or start a "
                    "new run."
                )
            ((verdict,),) = connection.execute("PRAGMA quick_check(1)")
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise self._explained(error) from error
            raise
        return connection

    def _explained(self, error: Exception) -> RolloutError:
        what = f"The rollout store {self.path or 'in memory'}"
        text = str(error)
        if "full" in text:
            told = f"cannot be written: {text}. Free some space, then resume."
        elif type(error) is sqlite3.DatabaseError:
            told = f"is corrupt ({text}). Move it away, or restore a copy."
        else:
            told = f"failed: {text}."
        return RolloutError(f"{what} {told}")
