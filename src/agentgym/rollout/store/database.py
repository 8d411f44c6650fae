"""Database: queue writes to SQLite; one thread commits them in groups."""

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

from agentgym.core.files import BEAT_S, WAIT_S, Beat, disk_trouble, no_beat
from agentgym.errors import RecordError, RolloutError, StoreError
from agentgym.security.files import make_private_file, private
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)


class Changes:
    """Wakes tasks in any event loop. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()

    def notify(self) -> None:
        """Wake all waiting tasks, which then check their condition again."""
        with self._lock:
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    async def wait[T](self, ready: Callable[[], T], timeout: float) -> T:
        """Wait up to ``timeout`` s for ``ready()``; return its last result."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._wakers.add(wake)
        try:
            async with asyncio.timeout(timeout):
                while not (value := ready()):
                    await changed.wait()
                    changed.clear()
                return value
        except TimeoutError:
            return ready()
        finally:
            with self._lock:
                self._wakers.discard(wake)


def hold(path: Path) -> TextIO | None:
    """Lock a store's file until the returned file is closed or this process ends.

    The lock is on a separate lock file, because closing the store's own file would
    release SQLite's locks. The store is not locked if the lock file cannot be opened
    (then None is returned), or if the file system has no locks, like some network
    disks.
    """
    path = path.resolve()  # a symbolic link and its target have the same lock
    try:
        lock = path.with_name(f".{path.name}.lock")
        file = open(lock, "a+", opener=private)  # noqa: SIM115
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except BlockingIOError:
        file.seek(0)
        holder = file.read() or "unknown"
        file.close()
        raise RolloutError(
            f"Process {holder} writes to the rollout store {path}. End it, or name "
            "another file."
        ) from None
    except OSError:  # no locks on this file system, or no space
        return file
    return file


SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE rollouts (
    rollout_id TEXT PRIMARY KEY,
    terminal_order INTEGER,
    rollout TEXT NOT NULL,
    hidden INTEGER NOT NULL DEFAULT 0,
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
_ROWS = "VALUES ?"
_ROW_COUNTS = (64, 16, 4, 1)  # rows per statement; each statement is prepared once
_BUSY_S = 0.25

Params = Sequence[Any]
# An SQL statement and its parameters. A statement that ends with `VALUES ?` adds one
# row. Successive equal statements of this kind are merged into one statement that adds
# several rows.
Write = tuple[str, Params]


class Database:
    """One SQLite file (WAL), or a database in memory.

    Writes are queued, and committed as a group every ``group_commit_s`` seconds. The
    writes of one :meth:`submit` (a submission) are committed together or not at all.
    While the disk is full or fails, or the file is locked, the writing thread retries
    for ``disk_wait_s`` seconds. After that, or if the thread dies, the methods that
    write or wait raise StoreError with the reason, also in threads that were waiting.

    A killed process loses at most the writes that were not flushed; a power cut may
    also lose the last commits, but leaves the file consistent (``synchronous=NORMAL``).

    After ``calm_s`` seconds without a write, the journal is merged into the file.
    ``on_failure`` is called once writing has failed for good. ``path`` and the other
    arguments are those of the class ``Store``.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        group_commit_s: float,
        disk_wait_s: float = WAIT_S,
        calm_s: float = 10.0,
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        self.path = path
        self._calm_s = calm_s
        self.stalled: str | None = None  # why writing waits at the moment
        self._group_commit_s = group_commit_s
        self._disk_wait_s = disk_wait_s
        self._commits = Changes()
        self._on_failure = on_failure
        self._held = None if path is None else hold(path)
        try:
            self._connection = self._open()
        except BaseException:
            self._free()
            raise
        self._connection_lock = threading.Lock()
        self._changed = threading.Condition()
        self._pending: list[tuple[Write, ...]] = []
        self._submitted = self._committed = 0
        self._hurry = threading.Event()
        self._impatient = threading.Event()
        self._error: StoreError | None = None
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="agentgym-store", daemon=True
        )
        self._thread.start()

    def submit(self, *writes: Write) -> int:
        """Queue writes to commit together; return their number.

        Blocks while too many are queued.
        """
        with self._changed:
            self.check()
            if self._is_closed:
                raise RolloutError("The rollout store is closed.")
            if not self._pending:
                self._changed.notify_all()
            self._pending.append(writes)
            self._submitted = number = self._submitted + 1
        if len(self._pending) > _MAX_PENDING:
            self.flush()
        return number

    def has_committed(self, number: int) -> bool:
        """Return whether all submissions up to ``number`` were committed."""
        return self._committed >= number

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None if writing works."""
        if self._error is not None:
            return str(self._error)
        if not self._thread.is_alive() and not self._is_closed:
            return f"{self._what()} failed: its writing thread has ended."
        return None

    def check(self) -> None:
        """Raise StoreError with the reason if nothing can be written any more."""
        if (failure := self.failure) is not None:
            raise StoreError(failure) from self._error

    def flush(self, beat: Beat = no_beat, number: int | None = None) -> None:
        """Wait until all submissions, or those up to ``number``, are committed."""
        wanted = self._submitted if number is None else number
        if self.has_committed(wanted):
            self.check()
            return
        self._hurry.set()
        while not self._is_flushed(wanted):
            beat(self.stalled)

    async def kept(self) -> None:
        """Wait until all earlier submissions are committed.

        Unlike :meth:`flush`, this does not make the commit happen earlier, so that more
        writes are committed together.
        """
        wanted = self._submitted

        def is_known() -> bool:
            if not (is_kept := self.has_committed(wanted)):
                self.check()
            return is_kept

        while not await self._commits.wait(is_known, WAIT_S):
            pass

    def give_up(self) -> None:
        """Stop retrying on a full or failing disk; the next failure is final."""
        self._impatient.set()

    def read(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; writes not yet committed are not included."""
        with self._reading() as reader:
            try:
                return reader.execute(sql, params).fetchall()
            except sqlite3.Error as error:
                raise self._explained(error) from error
            except (OverflowError, UnicodeEncodeError) as error:
                raise RecordError(f"No record has {params!r}: {error}.") from error

    def close(self) -> None:
        """Commit the queued writes and close the file."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._hurry.set()
        self._thread.join()
        self._connection.close()
        self._free()
        self.check()

    def _free(self) -> None:
        """Release the file's lock, so that another store can open the file."""
        if self._held is not None:
            self._held.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading; a long read does not block other threads."""
        if self.path is None:  # a database in memory has only one connection
            with self._connection_lock:
                yield self._connection
        else:
            with closing(self._connect()) as reader:
                yield reader

    def _is_flushed(self, wanted: int) -> bool:
        """Wait up to 0.5 s; return whether submission ``wanted`` is committed."""
        with self._changed:
            if self._committed < wanted:
                self.check()
                self._changed.wait(BEAT_S)
            return self._committed >= wanted

    def _run(self) -> None:
        """Commit submissions on the writing thread until the database is closed."""
        try:
            while group := self._next_group():
                self._commit(group)
                with self._changed:
                    self._committed += len(group)
                    self._changed.notify_all()
                self._commits.notify()
        except BaseException as error:
            logger.exception("the rollout store has failed")
            with self._changed:
                self._error = self._explained(error)
                self._error.__cause__ = error
                self._pending = []
                self._changed.notify_all()
            self._commits.notify()
            self._on_failure()

    def _next_group(self) -> list[tuple[Write, ...]]:
        """Wait for the next commit; return its writes, or [] after :meth:`close`."""
        while not self._has_work():
            self._empty_journal()
        self._hurry.wait(self._group_commit_s)
        with self._changed:
            group, self._pending = self._pending, []
            self._hurry.clear()
        return group

    def _has_work(self) -> bool:
        """Wait up to ``calm_s``; return whether writes are queued, or closing began."""
        with self._changed:
            if not self._pending and not self._is_closed:
                self._changed.wait(self._calm_s)
            return bool(self._pending) or self._is_closed

    def _empty_journal(self) -> None:
        """Merge the journal into the file, and empty the journal."""
        if self.path is not None:
            with self._connection_lock, suppress(sqlite3.Error):  # retried next time
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _commit(self, group: list[tuple[Write, ...]]) -> None:
        """Commit a group; retry while the disk is full or the file is locked."""
        until: float | None = None
        while True:
            try:
                with self._connection_lock:
                    self._transact(group)
                self.stalled = None
                return
            except sqlite3.Error as error:
                self.stalled = disk_trouble(error)
                until = until or time.monotonic() + self._disk_wait_s
                if self.stalled is None or time.monotonic() >= until:
                    raise
                if self._impatient.wait(BEAT_S):
                    raise

    def _transact(self, group: list[tuple[Write, ...]]) -> None:
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            writes = (write for each in group for write in each)
            for sql, found in groupby(writes, key=itemgetter(0)):
                self._execute(sql, [params for _, params in found])
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _execute(self, sql: str, rows: list[Params]) -> None:
        """Run a statement for each row; merge those that add a row."""
        # Each statement releases the GIL, and then waits for other threads.
        if not sql.endswith(_ROWS):
            for row in rows:
                self._connection.execute(sql, row)
            return
        while rows:
            count = next(n for n in _ROW_COUNTS if n <= len(rows))
            some, rows = rows[:count], rows[count:]
            marks = "(" + ", ".join("?" * len(some[0])) + ")"
            whole = sql.removesuffix("?") + ", ".join([marks] * count)
            self._connection.execute(whole, [x for row in some for x in row])

    def _connect(self) -> sqlite3.Connection:
        path = self.path or ":memory:"
        try:
            return sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _open(self) -> sqlite3.Connection:
        """Open the file for writing: create it, or check its format and integrity."""
        if self.path is not None:
            with suppress(OSError):  # SQLite reports it
                make_private_file(self.path)  # its journals get the same mode
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA secure_delete=ON")  # zero deleted data
            ((version,),) = connection.execute("PRAGMA user_version")
            ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
            if version == 0 and tables:
                message = f"{self.path} is an SQLite file but not a rollout store."
                raise RolloutError(message)
            if version == 0:
                connection.executescript(
                    f"BEGIN IMMEDIATE;{_SCHEMA}"
                    f"PRAGMA user_version={SCHEMA_VERSION};COMMIT;"
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

    def _what(self) -> str:
        return f"The rollout store {self.path or 'in memory'}"

    def _explained(self, error: BaseException) -> StoreError:
        text = str(error) or type(error).__name__
        if trouble := disk_trouble(error):
            message = f"cannot be written: {trouble} ({text})."
        elif type(error) is sqlite3.DatabaseError:
            message = f"is corrupt ({text}). Move it away, or restore a copy."
        else:
            message = f"failed: {text}."
        return StoreError(f"{self._what()} {message}")
