"""Write and read the database's rows, without the secrets in them."""

import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import orjson

from agentgym.errors import RecordError
from agentgym.rollout.store.database import Database, Write
from agentgym.rollout.store.records import (
    FINAL_STATES,
    MODEL_REQUEST,
    RecordedEvent,
    Rollout,
    RolloutState,
    decompressed,
)
from agentgym.security.redaction import Redactor

# Fields that are kept with all that they contain.
_WHOLE = frozenset({"inner", "parts", "server", "tools"})
# Fields whose objects and lists are kept, with those of their fields that may be.
_OPENED = frozenset(
    {
        *("choices", "function", "input", "message", "metadata", "reason", "request"),
        *("response", "score", "status", "tool_calls", "usage"),
    }
)
# Fields with a name or a number, which are kept.
_LABELS = frozenset(
    {
        *("agent", "charged", "code", "created", "created_at", "duration_ms"),
        *("duration_s", "family", "finish_reason", "group"),
        *("http_status", "id", "index", "is_train", "kind", "last_attempt_id"),
        *("latency_ms", "level", "model", "model_version", "name", "outcome", "role"),
        *("right_arguments", "right_tool", "rollout_id", "scenario", "seed", "split"),
        *("state", "status", "step", "success", "tool_choice", "type", "updated_at"),
        *("value", "version", "prompt_tokens", "completion_tokens", "total_tokens"),
    }
)


def without_texts(record: str) -> str:
    """Return a JSON record with only the names and numbers that are listed above."""
    return orjson.dumps(_opened(orjson.loads(record))).decode()


def _opened(value: Any) -> Any:
    if isinstance(value, list):
        return [_opened(each) for each in value if isinstance(each, dict)]
    kept: dict[str, Any] = {}
    for name, each in value.items():
        if name in _WHOLE:
            kept[name] = each
        elif isinstance(each, dict | list):
            kept |= {name: _opened(each)} if name in _OPENED else {}
        elif name in _LABELS or each is None:
            kept[name] = each
        elif isinstance(each, str):
            kept[name] = ""
    return kept


class RecordCleaner:
    """Removes secrets from records before they are written to the database.

    With ``goes_on``, unfinished rollouts are written with their secrets, because a
    later process continues them. With ``private``, all texts count as secrets.
    """

    def __init__(self, *, goes_on: bool = False, private: bool = False) -> None:
        self.goes_on = goes_on
        self._private = private
        self._redactor = Redactor.of_environment()

    def rollout(self, rollout: str, is_over: bool) -> str:
        """Return a rollout without secrets; unchanged if a process may continue it."""
        if self.goes_on and not is_over:
            return rollout
        if self._private:
            rollout = without_texts(rollout)
        return self._redactor.written(rollout)

    def name(self, name: str) -> str:
        """Remove secrets from an event's type."""
        return self._redactor.text(name)

    def event(self, raw: bytes) -> bytes:
        """Remove secrets from an event's JSON; return ``raw`` itself if it has none."""
        text = raw.decode()
        clean = self._redactor.record(without_texts(text) if self._private else text)
        return raw if clean is text else clean.encode()


# An event's type, rollout, attempt, time and payload, as SQLite has them.
Row = tuple[str, str, str, float, str | bytes]

_FASTEST = 1  # level of zlib; the best level takes twice as long and saves an eighth
_ROLLOUT = """INSERT INTO rollouts (rollout_id, terminal_order, rollout)
    VALUES (?, ?, ?) ON CONFLICT (rollout_id) DO UPDATE
    SET rollout = excluded.rollout,
        terminal_order = coalesce(terminal_order, excluded.terminal_order)"""


def write_rollout(
    rollout: Rollout, cleaner: RecordCleaner, terminal_order: int | None = None
) -> Write:
    """Return the SQL that adds a rollout, or updates its status."""
    rollout_id = rollout.rollout_id
    try:
        text = rollout.model_dump_json()
    except ValueError as error:
        raise RecordError(f"Rollout {rollout_id} is not JSON: {error}") from error
    is_over = rollout.status.state in FINAL_STATES
    return _ROLLOUT, (rollout_id, terminal_order, cleaner.rollout(text, is_over))


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


def row_of(event: RecordedEvent) -> Row:
    """Return the row of an event; model calls are compressed."""
    is_call = event.event_type == MODEL_REQUEST
    data = zlib.compress(event.raw, _FASTEST) if is_call else event.raw.decode()
    return event.event_type, event.rollout_id, event.attempt_id, event.timestamp, data


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
    database: Database, rollout_id: str, attempt_id: str | None = None
) -> Iterator[RecordedEvent]:
    """Yield the events of a rollout, or of one of its attempts, in order."""
    sql, params = "SELECT * FROM events WHERE rollout_id = ?", [rollout_id]
    if attempt_id is not None:
        sql, params = f"{sql} AND attempt_id = ?", [rollout_id, attempt_id]
    rows = database.read(f"{sql} ORDER BY rowid", params)
    yield from events_of(rows)


def events_of(rows: Iterable[Any]) -> Iterator[RecordedEvent]:
    """Yield the events of some rows."""
    for kind, rollout_id, attempt, timestamp, data in rows:
        raw = decompressed(data)
        yield RecordedEvent(kind, rollout_id, attempt, timestamp, raw)
