"""Read a run's store without changing its files, also while the run writes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from agentgym.errors import StoreError
from agentgym.rollout.store.database import SCHEMA_VERSION
from agentgym.rollout.store.records import (
    RecordedEvent,
    Rollout,
    by_attempt,
    decompressed,
)

_MAGIC = b"SQLite format 3\0"
# Place of the version in a file's header (https://www.sqlite.org/fileformat.html).
_VERSION = slice(60, 64)


class StoreReader:
    """Reads a run's ``rollouts.db``; each method opens and closes the file.

    SQLite writes an index of its journal (WAL) even over a read-only connection: it
    creates the index, or repairs it after a process was killed. So the index is opened
    read-only, too, and a file without a journal is opened as immutable. The file may
    not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """Whether the file exists and has its tables."""
        if not self.path.is_file():
            return False
        try:
            with self.path.open("rb") as file:
                header = file.read(_VERSION.stop)
        except OSError:
            return True  # a later read raises an error that explains this
        is_sound = header[:16] == _MAGIC and any(header[16:20])
        is_new = not header or (is_sound and not any(header[_VERSION]))
        return not is_new or _size_of(self._journal) > 0

    @property
    def _journal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection with a consistent snapshot of the file."""
        try:
            with closing(sqlite3.connect(self._address(), uri=True)) as connection:
                connection.execute("BEGIN")
                self._check_version(connection)
                yield connection
        except sqlite3.Error as error:
            raise StoreError(self._explained(error)) from error

    def rollout(self, rollout_id: str) -> Rollout | None:
        """Return a rollout; None if the id is unknown."""
        sql = "SELECT rollout FROM rollouts WHERE rollout_id = ?"
        with self.reading() as connection:
            row = connection.execute(sql, (rollout_id,)).fetchone()
        return None if row is None else Rollout.model_validate_json(row[0])

    def instructions(self, split: str) -> dict[str, str]:
        """Return the instructions of the evaluated tasks of a split, by task id."""
        sql = """SELECT DISTINCT json_extract(rollout, '$.input.id'),
            json_extract(rollout, '$.input.instruction') FROM rollouts
            WHERE NOT is_train AND json_extract(rollout, '$.input.split') = ?"""
        with self.reading() as connection:
            return dict(connection.execute(sql, (split,)).fetchall())

    def attempts(self, rollout_id: str) -> dict[str, list[RecordedEvent]]:
        """Return a rollout's events by attempt id, in the order they were recorded."""
        sql = """SELECT event_type, attempt_id, timestamp, data FROM events
            WHERE rollout_id = ? ORDER BY rowid"""
        with self.reading() as connection:
            rows = connection.execute(sql, (rollout_id,)).fetchall()
        return by_attempt(
            RecordedEvent(kind, rollout_id, attempt, at, decompressed(data))
            for kind, attempt, at, data in rows
        )

    def _address(self) -> str:
        if not self.exists:
            raise StoreError(
                f"{self.path} does not exist. It is made when the run's first rollout "
                "begins; a run without it has no rollouts to show."
            )
        index = self.path.with_name(f"{self.path.name}-shm")
        how = "&immutable=1"
        if _size_of(self._journal):  # a copied store may lack the index
            how = "&readonly_shm=1" if index.exists() else ""
        return f"{self.path.resolve().as_uri()}?mode=ro{how}"

    def _check_version(self, connection: sqlite3.Connection) -> None:
        ((version,),) = connection.execute("PRAGMA user_version")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} has the format {version}, and this agentgym reads the "
                f"format {SCHEMA_VERSION}. Look at it with the version of agentgym "
                "that made it."
            )

    def _explained(self, error: sqlite3.Error) -> str:
        return (
            f"{self.path} cannot be read ({error}). If a run was killed there, "
            "`agentgym train --resume RUN` repairs it; else restore a copy."
        )


def _size_of(file: Path) -> int:
    """Return a file's size in bytes; 0 if the file does not exist."""
    with suppress(OSError):
        return file.stat().st_size
    return 0
