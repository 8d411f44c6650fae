"""Keep unfinished and recently ended rollouts in memory, in addition to SQLite."""

import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from agentgym.errors import RolloutNotFoundError, RolloutStateError
from agentgym.rollout.store import tables
from agentgym.rollout.store.database import Database
from agentgym.rollout.store.events import ATTEMPT_FAILED, RecordedCall, RecordedEvent
from agentgym.rollout.store.rollout import (
    FINAL_STATES,
    FIRST_ATTEMPT,
    Lifecycle,
    NewRollout,
    Rollout,
    RolloutState,
)

_RECENT = 64  # ended rollouts that stay for a while, for later requests


@dataclass(slots=True)
class LiveRollout:
    """A rollout in memory. Not thread-safe: call it with the store's lock held."""

    rollout: Rollout  # as stored; replaced, not modified
    hidden: bool = False  # whether a client has deleted the rollout
    worker: str = ""  # name of the worker that claimed the current attempt
    tries: int = 0  # failed attempts that count against ``max_attempts``
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of model calls begun, by attempt and agent."""
    number: int = 0  # of the rollout's last submission, from Database.submit()
    routed: dict[str, RecordedEvent] = field(default_factory=dict)
    """The last model call of each attempt, by attempt id, if it has routed experts."""
    rows: list[tables.Row] | None = None
    """The rows of all events so far; None if they have to be read from SQLite."""

    @classmethod
    def new(cls, rollout_id: str, item: NewRollout) -> Self:
        """Return a new, queued rollout."""
        now = time.time()
        status = Lifecycle(created_at=now, updated_at=now)
        fields = dict(item) | {"rollout_id": rollout_id, "status": status}
        return cls(Rollout(**fields), rows=[])

    @property
    def state(self) -> RolloutState:
        """The rollout's state."""
        return self.rollout.status.state

    @property
    def ended(self) -> bool:
        """Whether the rollout succeeded or failed."""
        return self.state in FINAL_STATES

    @property
    def attempt_id(self) -> str:
        """Id of the current attempt."""
        return str(self.rollout.status.last_attempt_id or FIRST_ATTEMPT)

    @property
    def next_attempt_id(self) -> str:
        """Id for the attempt after the current one."""
        now = self.attempt_id
        return str(int(now) + 1) if now.isdecimal() else f"{now}-again"

    def change(self, **updates: Any) -> None:
        """Update fields of the rollout's status."""
        status = self.rollout.status
        updates |= {"version": status.version + 1, "updated_at": time.time()}
        changed = {"status": status.model_copy(update=updates)}
        self.rollout = self.rollout.model_copy(update=changed)

    def is_run_by(self, worker: str) -> bool:
        """Return whether a worker is running the rollout."""
        return self.state is RolloutState.RUNNING and self.worker == worker

    def restore(self, events: Iterable[RecordedEvent]) -> None:
        """Restore ``tries``, ``calls`` and ``routed`` from the recorded events."""
        for event in events:
            if (call := event.call) is not None:
                self.calls[event.attempt_id, call.agent] += 1
                self.routes_of(event, call)
            elif event.event_type == ATTEMPT_FAILED:
                self.tries += bool(event.data.get("charged"))

    def routes_of(
        self, event: RecordedEvent, call: RecordedCall
    ) -> RecordedEvent | None:
        """Remember a call that has routed experts; forget the attempt's previous one.

        Routed experts (those that a MoE model used for each token) are large. If
        ``call`` includes those of the previous call, return the previous call's event
        without them; else None.
        """
        before = self.routed.pop(event.attempt_id, None)
        if call.data.get("routed_experts") is None:
            return None
        self.routed[event.attempt_id] = event
        if before is None or not call.repeats_routes(RecordedCall(before.data)):
            return None
        return before.without_routes()

    def check_current(self, attempt_id: str) -> None:
        """Check that an attempt can still receive calls and results.

        Raises:
            RolloutNotFoundError: A client deleted the rollout.
            RolloutStateError: The attempt or its rollout is over.
        """
        rollout_id = self.rollout.rollout_id
        if self.hidden:
            raise RolloutNotFoundError(rollout_id)
        if self.ended:
            raise RolloutStateError(f"Rollout {rollout_id} has ended: {self.state}.")
        current = self.attempt_id
        numbered = attempt_id.isdecimal() and current.isdecimal()
        if numbered and int(attempt_id) < int(current):
            raise RolloutStateError(
                f"Attempt {attempt_id} of rollout {rollout_id} was given up; "
                f"attempt {current} is the current one."
            )


class Memory:
    """Keeps unfinished and recently ended rollouts in memory. Not thread-safe.

    A rollout is removed from memory only once all of its writes are in SQLite.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.live: dict[str, LiveRollout] = {}
        self._recent: deque[str] = deque()
        self._deleted: dict[str, int] = {}  # by id: the deletion's submission number

    def find(self, rollout_id: str) -> LiveRollout | None:
        """Return a rollout from memory or SQLite; None if the id is unknown."""
        if live := self.live.get(rollout_id):
            return live
        if not self._database.has_committed(self._deleted.get(rollout_id, 0)):
            return None
        found = tables.find_rollout(self._database, rollout_id)
        return None if found is None else LiveRollout(*found)

    def get(self, rollout_id: str) -> LiveRollout:
        """Return a rollout; raise RolloutNotFoundError if the id is unknown."""
        live = self.find(rollout_id)
        if live is None:
            raise RolloutNotFoundError(rollout_id)
        return live

    def ended(self, rollout_id: str) -> None:
        """Register that a rollout ended; forget rollouts that ended long ago."""
        self._recent.append(rollout_id)
        while len(self._recent) > _RECENT:
            oldest = self.live.get(self._recent[0])
            if oldest is not None and oldest.ended:  # its id may be in use again
                if not self._database.has_committed(oldest.number):
                    return
                del self.live[self._recent[0]]
            self._recent.popleft()

    def delete(self, rollout_id: str) -> LiveRollout | None:
        """Remove a rollout from memory and SQLite; return it if it was in memory."""
        is_known = self._database.has_committed
        waiting = {i: n for i, n in self._deleted.items() if not is_known(n)}
        number = self._database.submit(*tables.delete_rollout(rollout_id))
        self._deleted = waiting | {rollout_id: number}
        return self.live.pop(rollout_id, None)
