"""Write and read the database's rows as JSON; zlib compresses model calls."""

import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from agentgym.errors import RecordError
from agentgym.rollout.store.database import Database, Write
from agentgym.rollout.store.events import MODEL_REQUEST, RecordedEvent, decompressed
from agentgym.rollout.store.exact import Exact
from agentgym.rollout.store.rollout import (
    FINAL_STATES,
    ModelServer,
    Rollout,
    RolloutState,
)

Row = tuple[str, str, str, float, str | bytes]
"""An event's type, rollout, attempt, time and payload, as SQLite has them."""

_FASTEST = 1  # level of zlib; the best level takes twice as long and saves an eighth
_ROLLOUT = """INSERT INTO rollouts (rollout_id, terminal_order, rollout)
    VALUES (?, ?, ?) ON CONFLICT (rollout_id) DO UPDATE
    SET rollout = excluded.rollout,
        terminal_order = coalesce(terminal_order, excluded.terminal_order)"""
_EVENT = "INSERT INTO events VALUES ?"
_LAST_CALL = f"""UPDATE events SET data = ? WHERE rowid = (
    SELECT max(rowid) FROM events WHERE event_type = '{MODEL_REQUEST}'
    AND rollout_id = ? AND attempt_id = ?)"""


def write_rollout(
    rollout: Rollout, exact: Exact, terminal_order: int | None = None
) -> Write:
    """Return the SQL that adds a rollout, or updates its status."""
    rollout_id = rollout.rollout_id
    try:
        text = rollout.model_dump_json()
    except ValueError as error:
        raise RecordError(f"Rollout {rollout_id} is not JSON: {error}") from error
    is_over = rollout.status.state in FINAL_STATES
    return _ROLLOUT, (rollout_id, terminal_order, exact.clean_rollout(text, is_over))


def hide_rollout(rollout_id: str) -> Write:
    """Return the SQL that hides a rollout from clients."""
    return "UPDATE rollouts SET hidden = 1 WHERE rollout_id = ?", (rollout_id,)


def rename_rollout(rollout_id: str, new: str) -> tuple[Write, Write]:
    """Return the SQL that changes the id of a rollout and of its events to ``new``."""
    sql = "UPDATE {} SET rollout_id = ? WHERE rollout_id = ?"
    row = new, rollout_id
    return (sql.format("events"), row), (sql.format("rollouts"), row)


def delete_rollout(rollout_id: str) -> tuple[Write, Write]:
    """Return the SQL that removes a rollout and its events."""
    sql = "DELETE FROM {} WHERE rollout_id = ?"
    row = (rollout_id,)
    return (sql.format("events"), row), (sql.format("rollouts"), row)


def row_of(event: RecordedEvent, exact: Exact) -> Row:
    """Return the row of an event, without its secrets."""
    kind = exact.clean_name(event.event_type)
    where = event.rollout_id, event.attempt_id, event.timestamp
    return kind, *where, _stored(event, exact)


def write_event(row: Row) -> Write:
    """Return the SQL that adds an event."""
    return _EVENT, row


def write_model(model: ModelServer) -> Write:
    """Return the SQL that adds a model server, or replaces it."""
    row = model.model, model.endpoint, model.model_dump_json()
    return "INSERT OR REPLACE INTO models VALUES (?, ?, ?)", row


def rewrite_call(event: RecordedEvent, exact: Exact) -> Write:
    """Return the SQL that replaces the last model call of the event's attempt."""
    return _LAST_CALL, (_stored(event, exact), event.rollout_id, event.attempt_id)


def find_rollout(database: Database, rollout_id: str) -> tuple[Rollout, bool] | None:
    """Return a rollout, and whether a client deleted it; None for an unknown id."""
    sql = "SELECT rollout, hidden FROM rollouts WHERE rollout_id = ?"
    rows = database.read(sql, (rollout_id,))
    found = ((Rollout.model_validate_json(text), bool(gone)) for text, gone in rows)
    return next(found, None)


def read_in_states(
    database: Database, states: Collection[RolloutState], limit: int
) -> list[Rollout]:
    """Return the oldest ``limit`` rollouts whose state is in ``states``."""
    marks = ", ".join("?" * len(states))
    sql = f"""SELECT rollout FROM rollouts WHERE state IN ({marks}) AND NOT hidden
        ORDER BY rowid LIMIT ?"""
    rows = database.read(sql, (*states, limit))
    return [Rollout.model_validate_json(text) for (text,) in rows]


def read_ended(database: Database, after: int, limit: int) -> tuple[list[Rollout], int]:
    """Return up to ``limit`` ended rollouts after a cursor, in the order they ended.

    Also returns the next cursor. Rollouts that clients deleted are left out; cursors
    still count them.
    """
    sql = """SELECT terminal_order, hidden, rollout FROM rollouts
        WHERE terminal_order > ? ORDER BY terminal_order LIMIT ?"""
    rows = database.read(sql, (after, limit))
    found = [Rollout.model_validate_json(text) for _, gone, text in rows if not gone]
    return found, rows[-1][0] if rows else after


def read_events(
    database: Database, exact: Exact, rollout_id: str, attempt_id: str | None = None
) -> Iterator[RecordedEvent]:
    """Yield the events of a rollout, or of one of its attempts, in order."""
    sql, params = "SELECT * FROM events WHERE rollout_id = ?", [rollout_id]
    if attempt_id is not None:
        sql, params = f"{sql} AND attempt_id = ?", [rollout_id, attempt_id]
    rows = database.read(f"{sql} ORDER BY rowid", params)
    yield from events_of(rows, exact)


def events_of(rows: Iterable[Any], exact: Exact) -> Iterator[RecordedEvent]:
    """Yield the events of some rows."""
    for kind, rollout_id, attempt, timestamp, data in rows:
        raw = exact.restored(decompressed(data))
        yield RecordedEvent(kind, rollout_id, attempt, timestamp, raw)


def read_after(database: Database, step: int) -> list[str]:
    """Return the ids of rollouts of training steps after ``step``."""
    sql = "SELECT rollout_id FROM rollouts WHERE step > ?"
    return [rollout_id for (rollout_id,) in database.read(sql, (step,))]


def read_attempts(database: Database, rollout_id: str) -> list[str]:
    """Return the ids of a rollout's attempts that have events, in order."""
    sql = """SELECT attempt_id FROM events WHERE rollout_id = ?
        GROUP BY attempt_id ORDER BY min(rowid)"""
    return [name for (name,) in database.read(sql, (rollout_id,))]


def _stored(event: RecordedEvent, exact: Exact) -> str | bytes:
    raw = exact.clean(event.raw)
    if event.event_type != MODEL_REQUEST:
        return raw.decode()
    return zlib.compress(raw, _FASTEST)
