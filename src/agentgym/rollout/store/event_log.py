"""EventLog: rollouts in memory and in SQLite, and the events they recorded."""

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from agentlightning.schemas import DEFAULT_ATTEMPT_ID, Rollout

from agentgym.core.trajectory import ModelCall
from agentgym.errors import RolloutNotFoundError
from agentgym.rollout.store import tables
from agentgym.rollout.store.calls import MODEL_REQUEST, RecordedCall
from agentgym.rollout.store.database import Database
from agentgym.rollout.store.events import RecordedEvent, answered_calls, reward_of
from agentgym.rollout.store.live import LiveRollout


class EventLog:
    """What rollouts recorded, the recent of it in memory. Thread-safe.

    Writes reach SQLite within ``group_commit_s``; :meth:`flush` is the barrier.

    Args:
        path: SQLite file, made if missing; None keeps everything in memory.
        group_commit_s: Longest time a write waits for others.

    Raises:
        RolloutError: The file is corrupt, of a newer version, or something else.
    """

    def __init__(self, path: Path | None, *, group_commit_s: float) -> None:
        self._lock = threading.RLock()
        self._database = Database(path, group_commit_s=group_commit_s)
        self._live: dict[str, LiveRollout] = {}
        self._deleted: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, rollout_id: str) -> Rollout:
        """Return a rollout.

        Raises:
            RolloutNotFoundError: There is none with this id.
        """
        with self._lock:
            rollout = self._find(rollout_id)
        if rollout is None:
            raise RolloutNotFoundError(rollout_id)
        return rollout

    def begin_call(self, rollout_id: str, attempt_id: str, agent: str) -> int:
        """Admit a model call; return how many this agent made in the attempt before.

        Raises:
            RolloutNotFoundError: There is no such rollout.
            RolloutStateError: The rollout has ended, or the attempt was given up.
        """
        with self._lock:
            live = self._live.get(rollout_id) or self._get_live(rollout_id)
            live.check_current(attempt_id)
            return live.begin_call(attempt_id, agent)

    def record_call(
        self, rollout_id: str, attempt_id: str, call: RecordedCall
    ) -> RecordedEvent:
        """Record a model call of the current attempt.

        Raises:
            RolloutNotFoundError: There is no such rollout.
            RolloutStateError: The rollout has ended, or the attempt was given up:
                the answer came too late.
        """
        with self._lock:
            self._get_live(rollout_id).check_current(attempt_id)
            return self._record(rollout_id, attempt_id, MODEL_REQUEST, call)

    def add_event(
        self, rollout_id: str, attempt_id: str, event_type: str, data: dict[str, Any]
    ) -> RecordedEvent:
        """Record an event of any type, also after the rollout ended.

        Raises:
            RolloutNotFoundError: There is no such rollout.
            RolloutError: ``data`` is not JSON.
        """
        return self._record(rollout_id, attempt_id, event_type, data)

    def attempts(self, rollout_id: str) -> list[str]:
        """Return the attempts that recorded something, in order.

        Raises:
            RolloutNotFoundError: There is no such rollout.
        """
        return list(self._events(rollout_id))

    def events(
        self, rollout_id: str, attempt_id: str | None = None
    ) -> list[RecordedEvent]:
        """Return the events of an attempt, by default the last one, in order.

        Raises:
            RolloutNotFoundError: There is no such rollout.
        """
        wanted = attempt_id or self.get(rollout_id).status.last_attempt_id
        with self._lock:
            return list(self._events(rollout_id).get(wanted or DEFAULT_ATTEMPT_ID, ()))

    def model_calls(
        self, rollout_id: str, attempt_id: str | None = None
    ) -> list[ModelCall]:
        """Return the calls that the policy answered in an attempt, in order."""
        calls = answered_calls(self.events(rollout_id, attempt_id))
        return [call.to_model_call() for call in calls]

    def reward(self, rollout_id: str, attempt_id: str | None = None) -> float | None:
        """Return the reward that was reported; None if there was none."""
        return reward_of(self.events(rollout_id, attempt_id))

    def flush(self) -> None:
        """Return once everything recorded so far is in SQLite.

        Raises:
            RolloutError: It cannot be written.
        """
        self._database.flush()

    def forget(self, ids: Collection[str]) -> None:
        """Drop finished rollouts from memory; reads then come from SQLite."""
        self.flush()
        with self._lock:
            for rollout_id in ids:
                live = self._live.get(rollout_id)
                if live is not None and live.ended:
                    del self._live[rollout_id]

    def close(self) -> None:
        """Write what is left and close the file.

        Raises:
            RolloutError: It cannot be written.
        """
        self._database.close()

    def _find(self, rollout_id: str) -> Rollout | None:
        live = self._live.get(rollout_id)
        if live is not None:
            return live.rollout
        if rollout_id in self._deleted:
            return None
        found = tables.read_rollouts(self._database, "rollout_id = ?", (rollout_id,))
        return found[0] if found else None

    def _get_live(self, rollout_id: str) -> LiveRollout:
        """Return a rollout in memory, brought back from SQLite if need be."""
        live = self._live.get(rollout_id)
        if live is not None:
            return live
        return self._revive(self.get(rollout_id))

    def _revive(self, rollout: Rollout) -> LiveRollout:
        """Put a rollout that is only in SQLite back into memory."""
        rollout_id = rollout.rollout_id
        ((order,),) = self._database.read(
            "SELECT terminal_order FROM rollouts WHERE rollout_id = ?", (rollout_id,)
        )
        live = LiveRollout(rollout, terminal_order=order)
        live.restore(tables.read_events(self._database, rollout_id))
        self._live[rollout_id] = live
        return live

    def _events(self, rollout_id: str) -> dict[str, list[RecordedEvent]]:
        with self._lock:
            live = self._live.get(rollout_id)
            if live is not None:
                return live.attempts
            self.get(rollout_id)
            return tables.read_events(self._database, rollout_id)

    def _record(
        self,
        rollout_id: str,
        attempt_id: str,
        event_type: str,
        payload: RecordedCall | dict[str, Any],
    ) -> RecordedEvent:
        with self._lock:
            live = self._live.get(rollout_id) or self._get_live(rollout_id)
            writes = live.append(attempt_id, event_type, payload)
            self._database.submit(*writes)
            return live.attempts[attempt_id][-1]
