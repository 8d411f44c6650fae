"""The store's rows: JSON, compressed by zlib in the case of model calls."""

import zlib
from collections.abc import Collection, Sequence
from typing import Any

from agentlightning.schemas import Rollout, RolloutState

from agentgym.errors import RecordError
from agentgym.rollout.store.database import Database, Write
from agentgym.rollout.store.events import MODEL_REQUEST, RecordedEvent

_FASTEST = 1  # level of zlib; the best takes twice the time to save another eighth
_ROLLOUT = """INSERT INTO rollouts VALUES (?, ?, ?) ON CONFLICT (rollout_id) DO UPDATE
    SET rollout = excluded.rollout,
        terminal_order = coalesce(terminal_order, excluded.terminal_order)"""
_KEY = ("event_type", "rollout_id", "attempt_id", "timestamp")
_EVENT = """INSERT INTO events
    VALUES (:event_type, :rollout_id, :attempt_id, :timestamp, :data)"""
_LAST_EVENT = """UPDATE events SET data = :data WHERE rowid = (
    SELECT max(rowid) FROM events WHERE rollout_id = :rollout_id
    AND attempt_id = :attempt_id AND event_type = :event_type)"""


def write_rollout(rollout: Rollout, terminal_order: int | None = None) -> Write:
    """Add a rollout, or store its new status and its place if it has just ended."""
    rollout_id = rollout.rollout_id
    try:
        return _ROLLOUT, (rollout_id, terminal_order, rollout.model_dump_json())
    except ValueError as error:
        raise RecordError(f"Rollout {rollout_id} is not JSON: {error}") from error


def write_event(event: RecordedEvent, *, anew: bool = False) -> Write:
    """Add an event, or write an attempt's last one of this type anew."""
    row = {name: getattr(event, name) for name in _KEY}
    sql = _LAST_EVENT if anew else _EVENT
    if event.event_type != MODEL_REQUEST:
        return sql, row | {"data": event.raw.decode()}
    return sql, lambda: row | {"data": zlib.compress(event.raw, _FASTEST)}


def read_rollouts(
    database: Database, where: str, params: Sequence[Any] = ()
) -> list[Rollout]:
    """Return the rollouts of a condition."""
    rows = database.read(f"SELECT rollout FROM rollouts WHERE {where}", params)
    return [Rollout.model_validate_json(text) for (text,) in rows]


def read_in_states(
    database: Database, states: Collection[RolloutState], limit: int
) -> list[Rollout]:
    """Return the oldest rollouts in the given states; -1 is no limit."""
    marks = ", ".join("?" * len(states))
    where = f"state IN ({marks}) ORDER BY rowid LIMIT ?"
    return read_rollouts(database, where, (*states, limit))


def read_events(database: Database, rollout_id: str) -> list[RecordedEvent]:
    """Return a rollout's events in order."""
    sql = "SELECT * FROM events WHERE rollout_id = ? ORDER BY rowid"
    rows = database.read(sql, (rollout_id,))
    return [
        RecordedEvent(kind, rollout_id, attempt_id, timestamp, _read(data))
        for kind, _, attempt_id, timestamp, data in rows
    ]


def _read(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else zlib.decompress(data)
