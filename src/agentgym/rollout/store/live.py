"""LiveRollout: a rollout in memory, its attempts and their events."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from agentlightning.schemas import (
    DEFAULT_ATTEMPT_ID,
    TERMINAL_STATES,
    Rollout,
    RolloutConfig,
    RolloutCreate,
    RolloutLifecycleStatus,
    RolloutMetadata,
    RolloutState,
)

from agentgym.errors import RolloutError, RolloutStateError
from agentgym.rollout.store import tables
from agentgym.rollout.store.calls import RecordedCall
from agentgym.rollout.store.codec import pack_json
from agentgym.rollout.store.database import Write
from agentgym.rollout.store.events import RecordedEvent, superseded_routes

ATTEMPT_FAILED = "attempt_failed"
"""Type of the event that says why an attempt was given up."""


@dataclass(slots=True)
class LiveRollout:
    """A rollout in memory. Not thread-safe: the store holds its lock.

    Attributes:
        rollout: As Agent Lightning shapes it; replaced, never changed.
        worker: Who runs it.
        terminal_order: Its place among those that ended, None while it has not.
        attempts: Events by attempt id.
        tries: Failed attempts that count against the limit.
    """

    rollout: Rollout
    worker: str = ""
    terminal_order: int | None = None
    attempts: dict[str, list[RecordedEvent]] = field(default_factory=dict)
    tries: int = 0
    _last_call: dict[tuple[str, str], RecordedCall] = field(default_factory=dict)
    _calls_begun: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def attempt_id(self) -> str:
        """The current attempt."""
        return str(self.rollout.status.last_attempt_id or DEFAULT_ATTEMPT_ID)

    @property
    def next_attempt_id(self) -> str:
        """The attempt that follows the current one."""
        current = self.attempt_id
        return str(int(current) + 1 if current.isdigit() else len(self.attempts))

    @property
    def ended(self) -> bool:
        """Whether the rollout succeeded or failed."""
        return self.rollout.status.state in TERMINAL_STATES

    def is_run_by(self, worker: str) -> bool:
        """Return whether a worker is running the rollout."""
        running = self.rollout.status.state is RolloutState.RUNNING
        return running and self.worker == worker

    def restore(self, attempts: dict[str, list[RecordedEvent]]) -> None:
        """Take over the events that an earlier store recorded."""
        self.attempts = attempts
        for events in attempts.values():
            for event in events:
                if isinstance(event.payload, RecordedCall):
                    key = (event.attempt_id, event.payload.agent)
                    self._last_call[key] = event.payload
                    self._calls_begun[key] = self._calls_begun.get(key, 0) + 1
                elif event.event_type == ATTEMPT_FAILED:
                    self.tries += bool(event.payload.get("charged"))

    def check_current(self, attempt_id: str) -> None:
        """Refuse what comes from an attempt that is over.

        Raises:
            RolloutStateError: The rollout has ended, or the attempt was given up.
        """
        rollout_id = self.rollout.rollout_id
        if self.ended:
            raise RolloutStateError(
                f"Rollout {rollout_id} has ended: {self.rollout.status.state}."
            )
        current = self.attempt_id
        numbered = attempt_id.isdigit() and current.isdigit()
        if numbered and int(attempt_id) < int(current):
            raise RolloutStateError(
                f"Attempt {attempt_id} of rollout {rollout_id} was given up; "
                f"attempt {current} is the current one."
            )

    def begin_call(self, attempt_id: str, agent: str) -> int:
        """Return how many calls the agent began in the attempt before this one."""
        index = self._calls_begun.get((attempt_id, agent), 0)
        self._calls_begun[attempt_id, agent] = index + 1
        return index

    def append(
        self, attempt_id: str, event_type: str, payload: RecordedCall | dict[str, Any]
    ) -> list[Write]:
        """Add an event; return the writes that store it.

        Raises:
            RolloutError: The payload is not JSON.
        """
        rollout_id = self.rollout.rollout_id
        event = RecordedEvent(event_type, rollout_id, attempt_id, time.time(), payload)
        events = self.attempts.get(attempt_id, [])
        previous = None
        if isinstance(payload, RecordedCall):
            previous = self._last_call.get((attempt_id, payload.agent))
        else:
            check_json(event_type, payload)
        writes = [tables.insert_event(event, len(events), previous)]
        if isinstance(payload, RecordedCall):
            self._last_call[attempt_id, payload.agent] = payload
            place = superseded_routes(events, payload)
            if place is not None:
                events[place] = events[place].without_routes()
                writes.append(tables.drop_routes(events[place], place))
        events.append(event)
        self.attempts[attempt_id] = events
        return writes

    def change(self, **updates: Any) -> Rollout:
        """Set fields of the status; return the changed rollout."""
        status = self.rollout.status
        updates |= {"version": status.version + 1, "updated_at": time.time()}
        self.rollout = self.rollout.model_copy(
            update={"status": status.model_copy(update=updates)}
        )
        return self.rollout


def check_json(event_type: str, data: dict[str, Any]) -> None:
    """Refuse an event's payload that cannot be stored.

    Raises:
        RolloutError: It is not JSON.
    """
    try:
        pack_json(data)
    except TypeError as error:
        raise RolloutError(f"A {event_type!r} event is not JSON: {error}") from error


def new_rollout(item: RolloutCreate) -> Rollout:
    """Return the queued rollout that ``item`` asks for."""
    now = time.time()
    metadata = item.metadata or RolloutMetadata()
    if isinstance(metadata, dict):
        metadata = RolloutMetadata(**metadata)
    return Rollout(
        rollout_id=item.rollout_id or uuid.uuid4().hex,
        input=item.input,
        is_train=item.is_train,
        config=item.config or RolloutConfig(),
        metadata=metadata,
        status=RolloutLifecycleStatus(created_at=now, updated_at=now),
    )
