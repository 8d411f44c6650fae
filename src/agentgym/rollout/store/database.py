"""Database: SQLite written behind the caller's back, in groups, by one thread."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentgym.errors import RolloutError

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE rollouts (
    rollout_id TEXT PRIMARY KEY,
    ordinal INTEGER NOT NULL UNIQUE,
    is_train INTEGER NOT NULL,
    input BLOB NOT NULL,
    config BLOB NOT NULL,
    metadata BLOB NOT NULL,
    state TEXT NOT NULL,
    status BLOB NOT NULL,
    terminal_order INTEGER
);
CREATE INDEX rollouts_by_state ON rollouts (state);
CREATE INDEX rollouts_by_end ON rollouts (terminal_order)
    WHERE terminal_order IS NOT NULL;
CREATE TABLE events (
    rollout_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    timestamp REAL NOT NULL,
    data BLOB NOT NULL,
    tokens BLOB,
    routes BLOB,
    UNIQUE (rollout_id, attempt_id, seq)
);
CREATE TABLE models (
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (model, endpoint)
);
"""

Params = Sequence[Any]
Write = tuple[str, Params | Callable[[], Params]]
"""A statement, and its parameters or what computes them in the writing thread."""


class Database:
    """One SQLite file (WAL), or a database in memory.

    Writes are queued and committed together every ``group_commit_s``; the writes of
    one :meth:`submit` are committed together or not at all. A killed process loses
    at most what was not flushed; a power cut may also lose the last commits, but
    leaves the file consistent (``synchronous=NORMAL``).

    Args:
        path: The file, made if missing; None keeps everything in memory.
        group_commit_s: Longest time a write waits for others.
        max_pending: Writes that may wait; beyond it :meth:`submit` blocks.

    Raises:
        RolloutError: The file is no such database, corrupt, or of a newer version.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        group_commit_s: float = 0.03,
        max_pending: int = 20_000,
    ) -> None:
        self.path = path
        self._group_commit_s = group_commit_s
        self._max_pending = max_pending
        self._connection = _open(path)
        self._lock = threading.Lock()
        self._reader, self._reader_lock = self._connection, self._lock
        if path is not None:
            self._reader, self._reader_lock = _connect(path), threading.Lock()
        self._changed = threading.Condition()
        self._pending: list[Write] = []
        self._submitted = 0
        self._committed = 0
        self._hurry = False
        self._closing = False
        self._failure: RolloutError | None = None
        self._writer = threading.Thread(
            target=self._run, name="agentgym-store", daemon=True
        )
        self._writer.start()

    def submit(self, *writes: Write) -> None:
        """Queue writes that belong together.

        Raises:
            RolloutError: An earlier write failed, or the database is closed.
        """
        with self._changed:
            while len(self._pending) >= self._max_pending and self._failure is None:
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait()
            self._check()
            if not self._pending:
                self._changed.notify_all()
            self._pending.extend(writes)
            self._submitted += len(writes)

    def flush(self) -> None:
        """Return once everything submitted before is committed.

        Raises:
            RolloutError: A write failed, e.g. because the disk is full.
        """
        with self._changed:
            target = self._submitted
            while self._committed < target and self._failure is None:
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait()
            if self._failure is not None:
                raise self._failure

    def read(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; what is not flushed is not seen.

        Raises:
            RolloutError: The database cannot be read.
        """
        with self._reader_lock:
            try:
                return self._reader.execute(sql, params).fetchall()
            except sqlite3.Error as error:
                raise RolloutError(_explain(self.path, error)) from error

    def close(self) -> None:
        """Commit what is queued and close the file.

        Raises:
            RolloutError: A write failed.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._writer.join()
        with self._reader_lock:
            self._reader.close()
        self._connection.close()
        if self._failure is not None:
            raise self._failure

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise RolloutError("The rollout store is closed.")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closing:
                    self._changed.wait()
                if not self._pending:
                    return
                self._gather()
                batch, self._pending = self._pending, []
                self._hurry = False
                self._changed.notify_all()
            failure = self._commit(batch)
            with self._changed:
                self._committed += len(batch)
                self._failure = failure
                self._changed.notify_all()
            if failure is not None:
                return

    def _gather(self) -> None:
        """Wait for more writes until the group is due or somebody is waiting."""
        due = time.monotonic() + self._group_commit_s
        while not self._hurry and not self._closing:
            left = due - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _commit(self, batch: list[Write]) -> RolloutError | None:
        with self._lock:
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
                failure = RolloutError(_explain(self.path, error))
                failure.__cause__ = error
                return failure
        return None


def _open(path: Path | None) -> sqlite3.Connection:
    """Open the file for writing, made or checked.

    Raises:
        RolloutError: It cannot be used.
    """
    try:
        connection = _connect(path)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise RolloutError(_explain(path, error)) from error
    return connection


def _connect(path: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(
        path or ":memory:", isolation_level=None, check_same_thread=False
    )


def _prepare(connection: sqlite3.Connection, path: Path | None) -> None:
    """Create the tables, or check that they are ours and whole."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise RolloutError(
            f"The rollout store {path} has version {version}; this agentgym reads "
            f"up to {SCHEMA_VERSION}. Upgrade agentgym, or start a new run."
        )
    if version == 0:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables:
            raise RolloutError(f"{path} is an SQLite file but no rollout store.")
        connection.executescript(
            f"BEGIN;{_SCHEMA}PRAGMA user_version={SCHEMA_VERSION};COMMIT;"
        )
        return
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _explain(path: Path | None, error: Exception) -> str:
    what = f"The rollout store {path or 'in memory'}"
    text = str(error)
    if "full" in text:
        return f"{what} cannot be written: {text}. Free some space, then resume."
    corrupt = isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )
    if corrupt:
        return f"{what} is corrupt ({text}). Move it away, or restore a copy."
    return f"{what} failed: {text}."
