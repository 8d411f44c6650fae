"""Store: keep rollouts and events in SQLite, unfinished rollouts also in memory."""

import threading
import time
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from agentgym.core.files import BEAT_S, WAIT_S, Beat, no_beat
from agentgym.core.trajectory import ModelCall, Reason
from agentgym.errors import RolloutNotFoundError, RolloutStateError
from agentgym.rollout.store import tables
from agentgym.rollout.store.database import Changes, Database, Write
from agentgym.rollout.store.records import (
    ATTEMPT_FAILED,
    FINAL_STATES,
    FIRST_ATTEMPT,
    MODEL_REQUEST,
    NEXT_STATES,
    Lifecycle,
    ModelServer,
    NewEvent,
    NewRollout,
    RecordedEvent,
    Rollout,
    RolloutState,
    StatusChange,
    answered_calls,
    by_attempt,
)
from agentgym.rollout.store.tables import RecordCleaner

_RECENT = 64  # ended rollouts that stay for a while, for later requests


@dataclass(slots=True)
class LiveRollout:
    """A rollout in memory. Not thread-safe: call it with the store's lock held."""

    rollout: Rollout  # as stored; replaced, not modified
    hidden: bool = False  # whether a client has deleted the rollout
    worker: str = ""  # name of the worker that claimed the current attempt
    tries: int = 0  # failed attempts that count against ``max_attempts``
    # Number of model calls begun, by attempt and agent.
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    number: int = 0  # of the rollout's last submission, from Database.submit()
    # All events so far, with secrets; None if they have to be read from SQLite.
    rows: list[tables.Row] | None = None

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
        """Restore ``tries`` and ``calls`` from the recorded events."""
        for event in events:
            if (call := event.call) is not None:
                self.calls[event.attempt_id, call.agent] += 1
            elif event.event_type == ATTEMPT_FAILED:
                self.tries += bool(event.data.get("charged"))

    def check_current(self, attempt_id: str) -> None:
        """Check that an attempt can still receive calls and results."""
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


class Ends:
    """Reports which rollouts have ended; each end is reported once.

    ``ids`` are those of all the rollouts, and ``left`` of those whose end was not
    reported yet. ``check`` raises an error if no end can come any more.
    """

    def __init__(
        self,
        ids: Collection[str],
        changed: threading.Condition,
        check: Callable[[], None],
    ) -> None:
        self.ids = frozenset(ids)
        self.left = set(ids)
        self._changed = changed
        self._check = check
        self._heard: set[str] = set()

    def hear(self, rollout_id: str) -> None:
        """Register that a rollout ended; call it with the store's lock held."""
        if rollout_id in self.left:
            self._heard.add(rollout_id)
            self._changed.notify_all()

    def wait(self, timeout: float) -> set[str]:
        """Block until a rollout ends, at most ``timeout`` seconds."""
        until = time.monotonic() + timeout
        with self._changed:
            while self.left and not self._heard:
                self._check()
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, BEAT_S))
            found, self._heard = self._heard, set()
            self.left -= found
            return found

    def wait_for(self, count: int, timeout: float) -> set[str]:
        """Block until ``count`` rollouts have ended, at most ``timeout`` seconds."""
        until, found = time.monotonic() + timeout, self.wait(0)
        while len(found) < count and (more := self.wait(until - time.monotonic())):
            found |= more
        return found


_DELETED = Reason(kind="deleted", detail="a client of the gateway deleted it")


class Store:
    """Stores rollouts, their attempts and the attempts' events. Thread-safe.

    Writes reach SQLite within ``group_commit_s`` seconds; :meth:`flush` waits for them.
    Unfinished and recently ended rollouts are in memory as well, with their events if
    they were queued by this process; others are read from SQLite. Records are
    written without secrets, so only events in memory have the exact tokens of a call
    that contains a secret.

    Methods that take a rollout's id raise :class:`RolloutNotFoundError` if the id is
    unknown, and :class:`RolloutStateError` if the rollout or the attempt is over, or
    its state may not change so.
    Values that are not JSON raise :class:`RecordError`. Once SQLite cannot be written,
    methods that write or wait raise :class:`StoreError`, also in waiting threads.

    Args:
        path: SQLite file, created if missing; None keeps everything in memory.
        max_attempts: Number of failed attempts after which a rollout ends as failed.
        group_commit_s: Maximum seconds until a write is committed.
        disk_wait_s: Seconds to retry on a full or failing disk.
        goes_on: Whether a later process continues unfinished rollouts. If so, those
            rollouts are written with their secrets.
        private: Whether to write no texts, such as prompts, answers and results.

    Raises:
        RolloutError: The file is corrupt, of another version, not a store, or locked.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_attempts: int = 3,
        group_commit_s: float = 0.03,
        disk_wait_s: float = WAIT_S,
        goes_on: bool = False,
        private: bool = False,
    ) -> None:
        # Notified of each rollout that was queued or deleted, or changed its state.
        self.changes = Changes()
        self._cleaner = RecordCleaner(goes_on=goes_on, private=private)
        self._max_attempts = max_attempts
        self._lock = threading.RLock()
        self._ends_changed = threading.Condition(self._lock)
        self._watchers: list[Ends] = []
        self._database = database = Database(
            path,
            group_commit_s=group_commit_s,
            disk_wait_s=disk_wait_s,
            on_failure=self.changes.notify,
        )
        self._live: dict[str, LiveRollout] = {}
        self._recent: deque[str] = deque()
        self._deleted: set[str] = set()  # SQLite may still have some of them
        self._queue: OrderedDict[str, None] = OrderedDict()
        self._retired: set[str] = set()
        known = database.read("SELECT server FROM models")
        servers = [ModelServer.model_validate_json(text) for (text,) in known]
        self._models = {(each.model, each.endpoint): each for each in servers}
        ((last,),) = database.read("SELECT max(terminal_order) FROM rollouts")
        self._ended = last or 0
        unfinished = set(RolloutState) - FINAL_STATES
        for rollout in tables.read_in_states(database, unfinished, -1):
            live = self._live[rollout.rollout_id] = LiveRollout(rollout)
            live.restore(tables.read_events(database, rollout.rollout_id))
            if live.state is RolloutState.QUEUING:
                self._queue[rollout.rollout_id] = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stalled(self) -> str | None:
        """Why writing waits now, e.g. for disk space; None if it does not wait."""
        return self._database.stalled

    @property
    def failure(self) -> str | None:
        """Why the store cannot be written any more; None if it can."""
        return self._database.failure

    def flush(self, beat: Beat = no_beat) -> None:
        """Wait until all earlier writes are in SQLite."""
        self._database.flush(beat)

    async def kept(self) -> None:
        """With ``goes_on``, wait until all earlier writes are in SQLite."""
        if self._cleaner.goes_on:
            await self._database.kept()

    def give_up(self) -> None:
        """Stop retrying on a full or failing disk; lose the writes that then fail."""
        self._database.give_up()

    def close(self) -> None:
        """Write all queued writes, then close the file."""
        self._database.close()

    # Rollouts

    def create_rollouts(self, items: Sequence[NewRollout]) -> list[Rollout]:
        """Queue new rollouts; for a known id, return the existing rollout instead."""
        created: dict[str, LiveRollout] = {}
        writes: list[Write] = []
        found = []
        with self._lock:
            for item in items:
                name = item.rollout_id or uuid.uuid4().hex
                live = created.get(name) or self._find(name)
                if live is not None and live.hidden:  # its id is free again
                    kept = f"{name}~{uuid.uuid4().hex[:8]}"
                    writes += tables.rename_rollout(name, kept)
                    live = None
                if live is None:
                    live = created[name] = LiveRollout.new(name, item)
                    writes.append(tables.write_rollout(live.rollout, self._cleaner))
                found.append(live.rollout)
            number = self._database.submit(*writes)
            for live in created.values():
                live.number = number
            self._live.update(created)
            self._deleted -= created.keys()
            self._queue |= dict.fromkeys(created)
        self.changes.notify()
        return found

    def get(self, rollout_id: str) -> Rollout:
        """Return a rollout, also one that a client deleted."""
        with self._lock:
            return self._get(rollout_id).rollout

    def check_shown(self, rollout_id: str) -> None:
        """Raise RolloutNotFoundError if a client deleted the rollout."""
        with self._lock:
            if self._get(rollout_id).hidden:
                raise RolloutNotFoundError(rollout_id)

    def list_rollouts(
        self, states: Collection[RolloutState], limit: int = 500
    ) -> list[Rollout]:
        """Return the oldest ``limit`` rollouts that are in one of ``states``."""
        if FINAL_STATES.isdisjoint(states):
            with self._lock:
                found = [i.rollout for i in self._live.values() if i.state in states]
            return found[:limit]
        self.flush()
        return tables.read_in_states(self._database, states, limit)

    def has_ended(self, rollout_id: str) -> bool:
        """Return whether a rollout succeeded, failed or was deleted."""
        self._database.check()
        live = self._live.get(rollout_id)
        return live is None or live.ended

    def list_terminal(self, after: int, limit: int) -> tuple[list[Rollout], int, int]:
        """Return up to ``limit`` ended rollouts, in the order they ended.

        ``after`` is a cursor: 0, or the one that the last call returned. Also returns
        the next cursor, and the number of rollouts that have ended. Cursors stay valid
        when rollouts are deleted, and after a restart.
        """
        self.flush()
        found, after = tables.read_ended(self._database, after, limit)
        return found, after, self._ended

    def wait_terminal(
        self,
        ids: Collection[str],
        timeout: float = threading.TIMEOUT_MAX,
        *,
        count: int | None = None,
    ) -> set[str]:
        """Wait until ``count`` of the rollouts (None: all) have ended; return these."""
        with self.ends(ids) as ends:
            return ends.wait_for(len(ends.left) if count is None else count, timeout)

    @contextmanager
    def ends(self, ids: Collection[str]) -> Iterator[Ends]:
        """Yield an object that reports the ends of rollouts, earlier ones too.

        Inside the block, their events stay in memory.
        """
        ends = Ends(ids, self._ends_changed, self._database.check)
        with self._lock:
            self._watchers.append(ends)
            for rollout_id in filter(self.has_ended, ids):
                ends.hear(rollout_id)
        try:
            yield ends
        finally:
            with self._lock:
                self._watchers.remove(ends)

    def patch(self, rollout_id: str, status: StatusChange) -> Rollout:
        """Update the fields that are set in ``status``, for a client."""
        updates = status.model_dump(exclude_unset=True)
        with self._lock:
            live = self._get(rollout_id)
            new = updates.get("state")
            if "state" in updates and new not in NEXT_STATES[live.state]:
                raise RolloutStateError(
                    f"Rollout {rollout_id}: cannot transition {live.state} -> {new}"
                )
            return self._change(live, **updates) if updates else live.rollout

    def hide(self, rollout_id: str) -> None:
        """Hide a rollout that a client deleted; a new rollout may use its id.

        The record is kept. An unfinished rollout ends as failed.
        """
        with self._lock:
            live = self._find(rollout_id)
            if live is None or live.hidden:
                return
            live.hidden = True
            if not live.ended:
                self._give_up(live, _DELETED, retry=False)
            sql = "UPDATE rollouts SET hidden = 1 WHERE rollout_id = ?"
            live.number = self._database.submit((sql, (rollout_id,)))
        self.changes.notify()

    def delete(self, rollout_id: str) -> None:
        """Remove a rollout and its events; ignore an unknown id."""
        with self._lock:
            self._queue.pop(rollout_id, None)
            self._database.submit(*tables.delete_rollout(rollout_id))
            self._deleted.add(rollout_id)
            self._live.pop(rollout_id, None)
            self._notify_end(rollout_id)
        self.changes.notify()

    def delete_steps_after(self, step: int) -> None:
        """Remove the rollouts of steps after ``step``, which a resumed run repeats."""
        self.flush()
        sql = "SELECT rollout_id FROM rollouts WHERE step > ?"
        for (rollout_id,) in self._database.read(sql, (step,)):
            self.delete(rollout_id)

    # Attempts

    def claim(self, worker: str, n: int = 1) -> list[Rollout]:
        """Assign up to ``n`` queued rollouts to a worker; none to a retired worker."""
        claimed: list[Rollout] = []
        with self._lock:
            self._database.check()
            while self._queue and len(claimed) < n and worker not in self._retired:
                live = self._live.get(self._queue.popitem(last=False)[0])
                if live and live.state is RolloutState.QUEUING:
                    live.worker = worker
                    state, attempt = RolloutState.RUNNING, live.attempt_id
                    claimed.append(
                        self._change(live, state=state, last_attempt_id=attempt)
                    )
        return claimed

    async def claim_async(self, worker: str, n: int, *, wait_s: float) -> list[Rollout]:
        """Claim rollouts like :meth:`claim`; wait up to ``wait_s`` s for the first."""
        return await self.changes.wait(lambda: self.claim(worker, n), wait_s)

    def finish(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        state: RolloutState,
        events: Sequence[NewEvent] = (),
        reason: Reason | None = None,
        retry: bool = True,
    ) -> Rollout:
        """End an attempt: record its last events and its outcome in one transaction.

        If it failed, ``retry`` is true and attempts are left, a new attempt is queued.
        """
        with self._lock:
            live = self._get(rollout_id)
            live.check_current(attempt_id)
            if state not in NEXT_STATES[live.state] & FINAL_STATES:
                raise RolloutStateError(
                    f"Rollout {rollout_id}: cannot end as {state} from {live.state}."
                )
            where = rollout_id, attempt_id
            last = [RecordedEvent.now(e.event_type, *where, e.data) for e in events]
            if state is RolloutState.FAILED:
                why = reason or Reason(kind="failed")
                return self._give_up(live, why, last, retry=retry)
            return self._change(live, last, state=state, last_attempt_id=attempt_id)

    def fail(self, rollout_id: str, reason: Reason) -> None:
        """End a rollout as failed; ignore a rollout that has ended."""
        with self._lock:
            live = self._get(rollout_id)
            if not live.ended:
                self._give_up(live, reason, retry=False)

    def requeue(
        self,
        rollout_id: str,
        reason: Reason,
        *,
        charge: bool = True,
        worker: str | None = None,
    ) -> bool:
        """Abandon the current attempt; return whether a new attempt was queued.

        If no attempts are left, the rollout ends as failed. With ``charge``, the
        attempt counts against ``max_attempts``. If ``worker`` is given, only an attempt
        that this worker runs is abandoned.
        """
        with self._lock:
            live = self._get(rollout_id)
            if worker is not None and not live.is_run_by(worker):
                return False
            live.check_current(live.attempt_id)
            self._give_up(live, reason, charge=charge)
            return not live.ended

    def retire(self, worker: str) -> list[str]:
        """Refuse later claims of a dead worker; return its running rollouts' ids."""
        with self._lock:
            self._retired.add(worker)
            return [i for i, live in self._live.items() if live.is_run_by(worker)]

    # Events

    def begin_call(self, rollout_id: str, attempt_id: str, agent: str) -> int:
        """Count a model call that is sent; return how many the agent made before."""
        with self._lock:
            self._database.check()
            live = self._get(rollout_id)
            live.check_current(attempt_id)
            live.calls[attempt_id, agent] += 1
            return live.calls[attempt_id, agent] - 1

    def record_call(self, rollout_id: str, attempt_id: str, raw: bytes) -> None:
        """Record a model call, the JSON payload of a ``model_request`` event."""
        event = RecordedEvent(MODEL_REQUEST, rollout_id, attempt_id, time.time(), raw)
        with self._lock:
            live = self._get(rollout_id)
            live.check_current(attempt_id)
            live.number = self._database.submit(*self._added(live, [event]))

    def add_event(
        self, rollout_id: str, attempt_id: str, event_type: str, data: dict[str, Any]
    ) -> RecordedEvent:
        """Record an event of any type, also after the rollout's end."""
        event = RecordedEvent.now(event_type, rollout_id, attempt_id, data)
        with self._lock:
            live = self._get(rollout_id)
            live.number = self._database.submit(*self._added(live, [event]))
        return event

    def attempts(self, rollout_id: str) -> list[str]:
        """Return the ids of a rollout's attempts that have events, in order."""
        self._flush(rollout_id)
        sql = """SELECT attempt_id FROM events WHERE rollout_id = ?
            GROUP BY attempt_id ORDER BY min(rowid)"""
        return [name for (name,) in self._database.read(sql, (rollout_id,))]

    def events(
        self, rollout_id: str, attempt_id: str | None = None
    ) -> list[RecordedEvent]:
        """Return the events of an attempt, by default the last one, in order."""
        return list(self._read(rollout_id, attempt_id, only_one=True))

    def history(self, rollout_id: str) -> dict[str, list[RecordedEvent]]:
        """Return a rollout's events by attempt id, in the order they were recorded."""
        return by_attempt(self._read(rollout_id))

    def model_calls(
        self, rollout_id: str, attempt_id: str | None = None
    ) -> list[ModelCall]:
        """Return an attempt's model calls that have an answer, in order."""
        events = self.events(rollout_id, attempt_id)
        return [call.to_model_call() for call in answered_calls(events)]

    # Model servers that a trainer registered

    def models(self, name: str) -> list[ModelServer]:
        """Return the registered servers of a model."""
        with self._lock:
            return [model for model in self._models.values() if model.model == name]

    def register_models(self, models: Iterable[ModelServer]) -> None:
        """Add model servers; replace those with the same model and endpoint."""
        with self._lock:
            for model in models:
                self._models[model.model, model.endpoint] = model
                row = (model.model, model.endpoint, model.model_dump_json())
                sql = "INSERT OR REPLACE INTO models VALUES (?, ?, ?)"
                self._database.submit((sql, row))

    def clear_models(self) -> None:
        """Remove all registered model servers."""
        with self._lock:
            self._models.clear()
            self._database.submit(("DELETE FROM models", ()))

    def _read(
        self, rollout_id: str, attempt_id: str | None = None, *, only_one: bool = False
    ) -> Iterator[RecordedEvent]:
        """Return a rollout's events, or those of one attempt, by default the last."""
        with self._lock:
            live = self._get(rollout_id)
            rows = None if live.rows is None else [*live.rows]
        wanted = (attempt_id or live.attempt_id) if only_one else None
        if rows is None:
            self._flush(rollout_id)
            return tables.read_events(self._database, rollout_id, wanted)
        found = (row for row in rows if wanted is None or row[2] == wanted)
        return tables.events_of(found)

    def _flush(self, rollout_id: str) -> None:
        """Wait, without the lock, until a rollout's writes are in SQLite."""
        with self._lock:
            live = self._get(rollout_id)
            number = live.number if rollout_id in self._live else None
        self._database.flush(number=number)

    def _added(self, live: LiveRollout, events: Iterable[RecordedEvent]) -> list[Write]:
        """Keep events in memory; return the SQL that writes them without secrets."""
        writes: list[Write] = []
        for event in events:
            kind = self._cleaner.name(event.event_type)
            row = clean_row = (kind, *tables.row_of(event)[1:])
            if (clean := self._cleaner.event(event.raw)) is not event.raw:
                clean_row = (kind, *tables.row_of(replace(event, raw=clean))[1:])
            if live.rows is not None:
                live.rows.append(row)
            writes.append(("INSERT INTO events VALUES ?", clean_row))
        return writes

    def _change(
        self, live: LiveRollout, events: Sequence[RecordedEvent] = (), **updates: Any
    ) -> Rollout:
        """Record events and a new status in one transaction, and notify listeners."""
        writes = self._added(live, events)
        rollout_id, had_ended = live.rollout.rollout_id, live.ended
        live.change(**updates)
        has_ended, order = live.ended and not had_ended, None
        if has_ended and not live.hidden:
            order = self._ended = self._ended + 1
        write = tables.write_rollout(live.rollout, self._cleaner, order)
        live.number = self._database.submit(*writes, write)
        if live.state is not RolloutState.QUEUING:
            self._queue.pop(rollout_id, None)
        if has_ended:
            self._recent.append(rollout_id)
            self._forget_old()
            self._notify_end(rollout_id)
        self.changes.notify()
        return live.rollout

    def _find(self, rollout_id: str) -> LiveRollout | None:
        """Return a rollout from memory or SQLite; None if the id is unknown."""
        if rollout_id in self._deleted:
            return None
        if live := self._live.get(rollout_id):
            return live
        found = tables.find_rollout(self._database, rollout_id)
        return None if found is None else LiveRollout(*found)

    def _get(self, rollout_id: str) -> LiveRollout:
        """Return a rollout; raise RolloutNotFoundError if the id is unknown."""
        if (live := self._find(rollout_id)) is None:
            raise RolloutNotFoundError(rollout_id)
        return live

    def _forget_old(self) -> None:
        """Remove rollouts that ended long ago, and that SQLite has, from memory."""
        while len(self._recent) > _RECENT:
            name = self._recent[0]
            oldest = self._live.get(name)
            if oldest is not None and oldest.ended:  # its id may be in use again
                is_watched = any(name in ends.ids for ends in self._watchers)
                if is_watched or not self._database.has_committed(oldest.number):
                    return
                del self._live[name]
            self._recent.popleft()

    def _notify_end(self, rollout_id: str) -> None:
        for ends in self._watchers:
            ends.hear(rollout_id)

    def _give_up(
        self,
        live: LiveRollout,
        reason: Reason,
        events: Sequence[RecordedEvent] = (),
        *,
        charge: bool = True,
        retry: bool = True,
    ) -> Rollout:
        """Queue a new attempt; if no attempt is left, end the rollout as failed."""
        rollout_id, attempt_id = live.rollout.rollout_id, live.attempt_id
        why = {"reason": reason.model_dump(), "charged": charge}
        given_up = RecordedEvent.now(ATTEMPT_FAILED, rollout_id, attempt_id, why)
        tries = live.tries + charge
        state = RolloutState.FAILED
        if is_tried_again := retry and tries < self._max_attempts:
            state = RolloutState.QUEUING
            attempt_id = live.next_attempt_id
        rollout = self._change(
            live,
            [*events, given_up],
            state=state,
            last_attempt_id=attempt_id,
            error_message=str(reason),
        )
        live.tries, live.worker = tries, ""
        if is_tried_again:
            self._queue[rollout_id] = None
            self._queue.move_to_end(rollout_id, last=False)
            self.changes.notify()
        return rollout
