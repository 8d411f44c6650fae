"""The store's rows: statements that write rollouts and events, and their readers."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from agentlightning.schemas import Model, Rollout, RolloutState

from agentgym.rollout.store.calls import RecordedCall
from agentgym.rollout.store.codec import pack_call, pack_json, unpack_call
from agentgym.rollout.store.database import Database, Write
from agentgym.rollout.store.events import RecordedEvent

_ROLLOUT_COLUMNS = "rollout_id, is_train, input, config, metadata, status"


def insert_rollout(rollout: Rollout, ordinal: int) -> Write:
    """Return the write that adds a rollout.

    Raises:
        TypeError: Its input is not JSON.
    """
    return (
        "INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
        (
            rollout.rollout_id,
            ordinal,
            rollout.is_train,
            pack_json(rollout.input),
            rollout.config.model_dump_json().encode(),
            pack_json(rollout.metadata.model_dump(mode="json")),
            rollout.status.state.value,
            rollout.status.model_dump_json().encode(),
        ),
    )


def update_status(rollout: Rollout, terminal_order: int | None) -> Write:
    """Return the write of a rollout's status."""
    return (
        """UPDATE rollouts SET state = ?, status = ?, terminal_order = ?
        WHERE rollout_id = ?""",
        (
            rollout.status.state.value,
            rollout.status.model_dump_json().encode(),
            terminal_order,
            rollout.rollout_id,
        ),
    )


def insert_event(
    event: RecordedEvent, seq: int, previous: RecordedCall | None
) -> Write:
    """Return the write of an event; it is packed in the writing thread."""
    sql = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    key = (event.rollout_id, event.attempt_id, seq, event.event_type, event.timestamp)
    payload = event.payload
    if isinstance(payload, RecordedCall):
        return sql, lambda: (*key, *pack_call(payload, previous))
    return sql, lambda: (*key, pack_json(payload), None, None)


def drop_routes(event: RecordedEvent, seq: int) -> Write:
    """Return the write that removes an event's routed experts."""
    return (
        """UPDATE events SET routes = NULL
        WHERE rollout_id = ? AND attempt_id = ? AND seq = ?""",
        (event.rollout_id, event.attempt_id, seq),
    )


def delete_rollout(rollout_id: str) -> tuple[Write, Write]:
    """Return the writes that remove a rollout and its events."""
    return (
        ("DELETE FROM events WHERE rollout_id = ?", (rollout_id,)),
        ("DELETE FROM rollouts WHERE rollout_id = ?", (rollout_id,)),
    )


def upsert_model(model: Model) -> Write:
    """Return the write of a model server."""
    return (
        "INSERT OR REPLACE INTO models VALUES (?, ?, ?)",
        (model.model, model.endpoint, model.version),
    )


def read_rollouts(
    database: Database, where: str, params: Sequence[Any] = ()
) -> list[Rollout]:
    """Return the rollouts that satisfy ``where``, a condition and what follows it."""
    return [
        Rollout(
            rollout_id=rollout_id,
            is_train=bool(is_train),
            input=orjson.loads(task),
            config=orjson.loads(config),
            metadata=orjson.loads(metadata),
            status=orjson.loads(status),
        )
        for rollout_id, is_train, task, config, metadata, status in database.read(
            f"SELECT {_ROLLOUT_COLUMNS} FROM rollouts WHERE {where}", params
        )
    ]


def read_in_states(
    database: Database, states: Iterable[RolloutState], limit: int
) -> list[Rollout]:
    """Return the oldest rollouts in the given states."""
    values = [state.value for state in states]
    marks = ", ".join("?" * len(values))
    where = f"state IN ({marks}) ORDER BY ordinal LIMIT ?"
    return read_rollouts(database, where, (*values, limit))


def read_events(database: Database, rollout_id: str) -> dict[str, list[RecordedEvent]]:
    """Return a rollout's events by attempt, each attempt's in order."""
    attempts: dict[str, list[RecordedEvent]] = {}
    previous: dict[tuple[str, str], RecordedCall] = {}
    rows = database.read(
        "SELECT attempt_id, event_type, timestamp, data, tokens, routes FROM events "
        "WHERE rollout_id = ? ORDER BY attempt_id, seq",
        (rollout_id,),
    )
    for attempt_id, event_type, timestamp, data, tokens, routes in rows:
        values = orjson.loads(data)
        payload: RecordedCall | dict[str, Any] = values
        if tokens is not None:
            agent = (attempt_id, values["agent"])
            payload = unpack_call((data, tokens, routes), previous.get(agent))
            previous[agent] = payload
        attempts.setdefault(attempt_id, []).append(
            RecordedEvent(event_type, rollout_id, attempt_id, timestamp, payload)
        )
    return dict(sorted(attempts.items(), key=lambda item: item[1][0].timestamp))
