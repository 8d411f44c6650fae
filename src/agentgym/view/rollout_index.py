"""RolloutIndex: a table of all rollouts of a run, in memory, to filter and sort."""

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.errors import UsageError
from agentgym.rollout.store.reader import StoreReader
from agentgym.view.summaries import COLUMNS, NAMES, Attempt

_EVENTS = """SELECT rowid, event_type, rollout_id, attempt_id,
    CASE event_type WHEN 'model_request' THEN NULL ELSE data END
    FROM events WHERE rowid > ? ORDER BY rowid LIMIT ?"""
_ENDED = """SELECT rollout_id, rollout, terminal_order FROM rollouts
    WHERE terminal_order > ? ORDER BY terminal_order LIMIT ?"""
_OPEN = """SELECT rollout_id, rollout FROM rollouts
    WHERE state IN ('queuing', 'running') LIMIT 2000"""
_CHUNK = 20_000
_MOST_ROWS = 500

EQUAL = (
    "split",
    "phase",
    "held_out",
    "step",
    "family",
    "level",
    "task_id",
    "task_group",
    "outcome",
    "reason",
)
"""Columns that a filter compares with one value, or one of several."""
LISTED = ("rules", "roles")
"""Columns with several values, of which a filter names one."""
FACETS = ("phase", "split", "held_out", "step", "family", "level", "outcome", "reason")
_HAS_WORD = "rollout_id IN (SELECT rollout_id FROM texts WHERE instr(words, ?))"
_WRONG_ARGUMENT = "right_tool > right_arguments"
_SHOWN = NAMES[:-1]


class RolloutIndex:
    """Summaries of a run's rollouts, read from its store as far as it goes.

    Thread-safe. Holds about 1.5 kB of memory for each rollout.

    Args:
        store: Of the run.
    """

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(f"CREATE TABLE rollouts ({', '.join(COLUMNS[:-1])})")
        # Apart from the rest, so that other filters pass over narrow rows.
        self._database.execute(f"CREATE TABLE texts ({COLUMNS[0]}, {COLUMNS[-1]})")
        for name in ("place", "task_id", "task_group"):
            self._database.execute(f"CREATE INDEX by_{name} ON rollouts ({name})")
        self._attempts: dict[str, Attempt] = {}
        self._last_event = self._last_end = 0
        self._identity: tuple[Any, ...] = ()

    @property
    def path(self) -> Path:
        """The store's file."""
        return self._store.path

    def update(self) -> int:
        """Read new events of the store; return how many rows have changed.

        A store whose rows were removed, as a resumed run does, is read from its
        beginning.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._updating:
            changed = 0
            while more := self._read_chunk():
                changed += more[0]
                if not more[1]:
                    break
            return changed

    def _read_chunk(self) -> tuple[int, bool]:
        """Read some events and the ends that they complete; say if there are more."""
        with self._store.reading() as store:
            if self._has_shrunk(store):
                with self._lock:
                    self._reset()
            events = store.execute(_EVENTS, (self._last_event, _CHUNK)).fetchall()
            for rowid, kind, rollout_id, attempt_id, data in events:
                self._attempt(rollout_id, attempt_id).read(kind, data)
                self._last_event = rowid
            has_more = len(events) == _CHUNK
            ended = store.execute(_ENDED, (self._last_end, _CHUNK)).fetchall()
            if has_more:  # an end comes with the last event of its rollout
                ended = self._complete(store, ended)
            rows = [
                self._attempts.pop(rollout_id, Attempt()).summarize(
                    rollout_id, text, place
                )
                for rollout_id, text, place in ended
            ]
            unfinished = [] if has_more else store.execute(_OPEN).fetchall()
        rows += [
            self._attempts.get(rollout_id, Attempt()).summarize(rollout_id, text, None)
            for rollout_id, text in unfinished
        ]
        if ended:
            self._last_end = ended[-1][2]
        marks = ", ".join("?" * len(_SHOWN))
        with self._lock:
            self._database.executemany(
                f"INSERT OR REPLACE INTO rollouts VALUES ({marks})",
                [row[:-1] for row in rows],
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO texts VALUES (?, ?)",
                [(row[0], row[-1]) for row in rows],
            )
        return len(rows), has_more or len(ended) == _CHUNK

    def _complete(
        self, store: sqlite3.Connection, ended: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """Return the ended rollouts all of whose events were read, up to a gap."""
        last = """SELECT max(rowid) FROM events WHERE rollout_id = ?"""
        found = []
        for row in ended:
            ((newest,),) = store.execute(last, row[:1])
            if newest is not None and newest > self._last_event:
                break
            found.append(row)
        return found

    def _has_shrunk(self, store: sqlite3.Connection) -> bool:
        """Say whether the store is another one, or has lost rows that were read."""
        ((newest, ended),) = store.execute(
            "SELECT (SELECT max(rowid) FROM events),"
            " (SELECT max(terminal_order) FROM rollouts)"
        )
        return (newest or 0) < self._last_event or (ended or 0) < self._last_end

    def _attempt(self, rollout_id: str, attempt_id: str) -> Attempt:
        found = self._attempts.get(rollout_id)
        if found is None or found.name != attempt_id:
            found = self._attempts[rollout_id] = Attempt(attempt_id)
        return found

    def find(
        self,
        filters: Mapping[str, str],
        *,
        sort: str = "-place",
        offset: int = 0,
        limit: int = 50,
    ) -> dict[str, Any]:
        """Return a page of rollouts, and how many there are.

        Args:
            filters: Column and value, or values with commas between them; ``text`` is
                searched in the instruction, the calls, the errors and the ids;
                ``wrong_argument`` keeps rollouts that called the right tool with wrong
                arguments.
            sort: A column, with ``-`` before it for the largest first.
            offset: Rows before the page.
            limit: Most rows, up to 500.

        Raises:
            UsageError: A filter or the order names no column.
        """
        where, values = _conditions(filters)
        name = sort.removeprefix("-")
        if name not in _SHOWN:
            raise UsageError(f"Rollouts cannot be sorted by {name!r}.")
        order = f"{name} {'DESC' if sort.startswith('-') else 'ASC NULLS LAST'}"
        sql = f"""SELECT {", ".join(_SHOWN)} FROM rollouts {where}
            ORDER BY {order}, rowid LIMIT ? OFFSET ?"""
        page = (*values, max(1, min(limit, _MOST_ROWS)), max(0, offset))
        with self._lock:
            ((total,),) = self._database.execute(
                f"SELECT count(*) FROM rollouts {where}", values
            )
            rows = self._database.execute(sql, page).fetchall()
        return {"total": total, "rows": [_record(row) for row in rows]}

    def facets(self) -> dict[str, Any]:
        """Return the values of each column that a filter can name, with their count."""
        found: dict[str, Any] = {}
        with self._lock:
            for name in FACETS:
                found[name] = self._database.execute(
                    f"""SELECT {name}, count(*) FROM rollouts WHERE {name} IS NOT NULL
                    AND {name} != '' GROUP BY 1 ORDER BY 1"""
                ).fetchall()
            for name in LISTED:
                counts: dict[str, int] = {}
                sql = f"SELECT {name}, count(*) FROM rollouts WHERE {name} != '' GROUP "
                for text, count in self._database.execute(f"{sql} BY 1"):
                    for value in text.strip("\n").split("\n"):
                        counts[value] = counts.get(value, 0) + count
                found[name] = sorted(counts.items())
            sql = f"SELECT count(*) FROM rollouts WHERE {_WRONG_ARGUMENT}"
            ((found["wrong_argument"],),) = self._database.execute(sql)
            ((found["all"],),) = self._database.execute("SELECT count(*) FROM rollouts")
        return found

    def curves(self, by: str) -> list[dict[str, Any]]:
        """Return success, reward and choices of training rollouts by step and a column.

        Raises:
            UsageError: The column is not ``family``, ``level`` or ``roles``.
        """
        if by not in ("family", "level", "roles"):
            raise UsageError(f"Curves cannot be drawn by {by!r}.")
        sql = f"""SELECT {by}, step, count(*), avg(outcome = 'succeeded'), avg(reward),
            avg(right_tool), avg(right_arguments) FROM rollouts
            WHERE phase = 'train' AND outcome IN ('succeeded', 'failed')
            GROUP BY 1, 2 ORDER BY 1, 2"""
        names = "name", "step", "count", "success", "reward", "right_tool"
        with self._lock:
            rows = self._database.execute(sql).fetchall()
        return [
            dict(zip((*names, "right_arguments"), row, strict=True)) for row in rows
        ]


def _conditions(filters: Mapping[str, str]) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    for name, given in filters.items():
        if name in EQUAL:
            several = given.split(",") if name in ("step", "level") else [given]
            parts.append(f"{name} IN ({', '.join('?' * len(several))})")
            values += several
        elif name in LISTED:
            parts.append(f"instr({name}, ?)")
            values.append(f"\n{given}\n")
        elif name == "text":
            for word in given.lower().split():
                parts.append(_HAS_WORD)
                values.append(word)
        elif name == "wrong_argument":
            parts.append(_WRONG_ARGUMENT)
        else:
            raise UsageError(f"Rollouts cannot be filtered by {name!r}.")
    return f"WHERE {' AND '.join(parts)}" if parts else "", values


def _record(row: Sequence[Any]) -> dict[str, Any]:
    record = dict(zip(_SHOWN, row, strict=True))
    for name in LISTED:
        text = record[name].strip("\n")
        record[name] = text.split("\n") if text else []
    return record
