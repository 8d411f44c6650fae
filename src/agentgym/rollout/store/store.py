"""Store: rollouts and their events, live ones in memory, all of them in SQLite."""

import threading
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentlightning.schemas import (
    TERMINAL_STATES,
    VALID_TRANSITIONS,
    EventCreate,
    Rollout,
    RolloutCreate,
    RolloutState,
    RolloutStatusPatch,
)

from agentgym.core.trajectory import Reason
from agentgym.errors import RolloutError, RolloutStateError
from agentgym.rollout.store import signals, tables
from agentgym.rollout.store.database import Write
from agentgym.rollout.store.event_log import EventLog
from agentgym.rollout.store.live import (
    ATTEMPT_FAILED,
    LiveRollout,
    check_json,
    new_rollout,
)
from agentgym.rollout.store.model_servers import ModelServers
from agentgym.rollout.store.signals import Signals

FAILED = Reason(kind="failed")
INTERRUPTED = Reason(kind="interrupted")
_UNFINISHED = [state for state in RolloutState if state not in TERMINAL_STATES]


class Store(EventLog):
    """Rollouts, their attempts and their events. Thread-safe.

    Writes reach SQLite within ``group_commit_s``; :meth:`flush` is the barrier.
    Unfinished rollouts are always in memory; finished ones until :meth:`forget`.
    One store per file at a time.

    Args:
        path: SQLite file, made if missing; None keeps everything in memory.
        max_attempts: Tries of a rollout before :meth:`requeue` lets it fail.
        group_commit_s: Longest time a write waits for others.

    Raises:
        RolloutError: The file is corrupt, of a newer version, or something else.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_attempts: int = 3,
        group_commit_s: float = 0.03,
    ) -> None:
        super().__init__(path, group_commit_s=group_commit_s)
        self.signals = Signals()
        self._max_attempts = max_attempts
        self._queue: deque[str] = deque()
        self._retired: set[str] = set()
        self._ordinal = 0
        self._ended = 0
        self.models = ModelServers(self._database)
        self._load()

    def create_rollouts(self, items: Sequence[RolloutCreate]) -> list[Rollout]:
        """Queue rollouts; those whose id is known are returned as they are.

        Raises:
            RolloutError: An input or its metadata is not JSON.
        """
        created: dict[str, Rollout] = {}
        found = []
        writes: list[Write] = []
        with self._lock:
            for item in items:
                known = item.rollout_id and (
                    created.get(item.rollout_id) or self._find(item.rollout_id)
                )
                if not known:
                    known = new_rollout(item)
                    created[known.rollout_id] = known
                    ordinal = self._ordinal + len(created)
                    writes.append(_insert(known, ordinal))
                found.append(known)
            self._database.submit(*writes)
            self._ordinal += len(created)
            for rollout_id, rollout in created.items():
                self._live[rollout_id] = LiveRollout(rollout)
                self._deleted.discard(rollout_id)
                self._queue.append(rollout_id)
        self.signals.notify(signals.QUEUE, signals.ANY)
        return found

    def list_rollouts(
        self, states: Collection[RolloutState], limit: int = 500
    ) -> list[Rollout]:
        """Return the oldest rollouts in ``states``."""
        if TERMINAL_STATES.isdisjoint(states):
            with self._lock:
                live = [item.rollout for item in self._live.values()]
            return [r for r in live if r.status.state in states][:limit]
        self.flush()
        return tables.read_in_states(self._database, states, limit)

    def has_any(self, states: Collection[RolloutState]) -> bool:
        """Return whether a rollout in memory is in one of ``states``."""
        with self._lock:
            return any(i.rollout.status.state in states for i in self._live.values())

    def list_terminal(self, after: int, limit: int) -> tuple[list[Rollout], int, int]:
        """Return rollouts in the order they ended.

        Args:
            after: The cursor that the call before returned; 0 at first.
            limit: Most rollouts to return.

        Returns:
            The rollouts, the next cursor, and how many ever ended.
        """
        self.flush()
        orders = self._database.read(
            "SELECT terminal_order FROM rollouts WHERE terminal_order > ? "
            "ORDER BY terminal_order LIMIT ?",
            (after, limit),
        )
        if not orders:
            return [], after, self._ended
        found = tables.read_rollouts(
            self._database,
            "terminal_order > ? AND terminal_order <= ? ORDER BY terminal_order",
            (after, orders[-1][0]),
        )
        return found, orders[-1][0], self._ended

    def patch(self, rollout_id: str, status: RolloutStatusPatch) -> Rollout:
        """Change the fields of a rollout's status that ``status`` sets.

        Raises:
            RolloutNotFoundError: There is none with this id.
            RolloutStateError: Agent Lightning's table of transitions forbids it.
        """
        updates = status.model_dump(exclude_unset=True)
        with self._lock:
            live = self._get_live(rollout_id)
            state = live.rollout.status.state
            new = updates.get("state", state)
            if "state" in updates and new not in VALID_TRANSITIONS[state]:
                raise RolloutStateError(
                    f"Rollout {rollout_id}: cannot transition {state} -> {new}"
                )
            return self._change(live, **updates) if updates else live.rollout

    def delete(self, rollout_id: str) -> None:
        """Remove a rollout and its events; one that is not there is no error."""
        with self._lock:
            live = self._live.pop(rollout_id, None)
            self._deleted.add(rollout_id)
            self._database.submit(*tables.delete_rollout(rollout_id))
        if live is not None:
            self.signals.notify(signals.terminal(rollout_id), signals.ANY)

    def delete_steps_after(self, step: int) -> list[str]:
        """Remove rollouts of training steps after ``step`` (``metadata.step``).

        A resumed run makes them again, under the same ids.
        """
        self.flush()
        found = self._database.read(
            "SELECT rollout_id FROM rollouts "
            "WHERE json_extract(CAST(metadata AS TEXT), '$.step') > ?",
            (step,),
        )
        for (rollout_id,) in found:
            self.delete(rollout_id)
        return [rollout_id for (rollout_id,) in found]

    def recover(self, reason: Reason = INTERRUPTED) -> list[str]:
        """Requeue what was running when the process before this one ended."""
        with self._lock:
            interrupted = self.running()
            for rollout_id in interrupted:
                self.requeue(rollout_id, reason, charge=False)
        return interrupted

    def claim(self, worker: str, n: int = 1, *, wait_s: float = 0.0) -> list[Rollout]:
        """Hand up to ``n`` queued rollouts to a worker and mark them running.

        A worker that was retired gets none.

        Args:
            worker: Who will run them.
            n: At most this many.
            wait_s: Block this long until there is one.
        """
        return self.signals.wait(
            signals.QUEUE, lambda: self._claim_now(worker, n), wait_s
        )

    async def claim_async(self, worker: str, n: int, *, wait_s: float) -> list[Rollout]:
        """Like :meth:`claim`, without blocking the event loop."""
        return await self.signals.wait_async(
            signals.QUEUE, lambda: self._claim_now(worker, n), wait_s
        )

    def finish(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        state: RolloutState,
        events: Sequence[EventCreate] = (),
        reason: Reason | None = None,
        retry: bool = True,
    ) -> Rollout:
        """End an attempt: record its events and its outcome, all or nothing.

        A failed attempt is queued again, with a fresh attempt id, while tries are
        left and ``retry`` is true.

        Raises:
            RolloutNotFoundError: There is none with this id.
            RolloutStateError: The rollout has ended, or the attempt was given up.
            RolloutError: An event is not JSON.
        """
        with self._lock:
            live = self._get_live(rollout_id)
            live.check_current(attempt_id)
            current = live.rollout.status.state
            if state not in VALID_TRANSITIONS[current] & TERMINAL_STATES:
                raise RolloutStateError(
                    f"Rollout {rollout_id}: cannot end as {state} from {current}."
                )
            for event in events:
                check_json(event.event_type, event.data)
            writes = [
                write
                for event in events
                for write in live.append(attempt_id, event.event_type, event.data)
            ]
            if state is RolloutState.FAILED:
                return self._give_up(live, reason or FAILED, writes, retry=retry)
            return self._change(
                live, state=state, last_attempt_id=attempt_id, writes=writes
            )

    def fail(self, rollout_id: str, reason: Reason) -> Rollout:
        """End a rollout as failed; one that has ended is left as it is."""
        with self._lock:
            live = self._get_live(rollout_id)
            if live.ended:
                return live.rollout
            return self._give_up(live, reason, [], retry=False)

    def requeue(
        self,
        rollout_id: str,
        reason: Reason,
        *,
        charge: bool = True,
        worker: str | None = None,
    ) -> bool:
        """Give up the current attempt and queue the rollout for a fresh one.

        Args:
            rollout_id: The rollout.
            reason: Why; recorded in the attempt that is given up.
            charge: Whether the attempt counts against ``max_attempts``.
            worker: Leave the rollout as it is unless this worker is running it.

        Returns:
            Whether it was queued; if no tries are left it ends as failed.

        Raises:
            RolloutStateError: The rollout has ended, and no worker was named.
        """
        with self._lock:
            live = self._get_live(rollout_id)
            if worker is not None and not live.is_run_by(worker):
                return False
            live.check_current(live.attempt_id)
            self._give_up(live, reason, [], charge=charge)
            return not live.ended

    def held_by(self, worker: str) -> list[str]:
        """Return the rollouts that a worker is running."""
        with self._lock:
            return [i for i, live in self._live.items() if live.is_run_by(worker)]

    def retire(self, worker: str) -> list[str]:
        """Hand a worker nothing any more; return the rollouts that it is running.

        What it asked for before it died may arrive after its death.
        """
        with self._lock:
            self._retired.add(worker)
            return self.held_by(worker)

    def running(self) -> list[str]:
        """Return the rollouts that are running."""
        with self._lock:
            return [
                rollout_id
                for rollout_id, live in self._live.items()
                if live.rollout.status.state is RolloutState.RUNNING
            ]

    def wait_terminal(
        self,
        ids: Collection[str],
        timeout: float | None = None,
        *,
        count: int | None = None,
    ) -> set[str]:
        """Block until rollouts have ended; deleted ones count as ended.

        Args:
            ids: The rollouts waited for.
            timeout: Seconds to wait at most.
            count: How many of them must have ended; None means all.

        Returns:
            Those that have ended.
        """
        needed = len(set(ids)) if count is None else count
        ended: set[str] = set()
        enough = threading.Event()

        def mark(rollout_id: str) -> None:
            ended.add(rollout_id)
            if len(ended) >= needed:
                enough.set()

        waiting = [(signals.terminal(i), partial(mark, i), i) for i in set(ids)]
        try:
            for key, callback, rollout_id in waiting:
                self.signals.subscribe(key, callback)
                if self.has_ended(rollout_id):
                    mark(rollout_id)
            if len(ended) < needed:
                enough.wait(timeout)
        finally:
            for key, callback, _ in waiting:
                self.signals.unsubscribe(key, callback)
        return set(ended)

    def has_ended(self, rollout_id: str) -> bool:
        """Return whether a rollout succeeded, failed or was deleted."""
        with self._lock:
            live = self._live.get(rollout_id)
            return live is None or live.ended

    def _load(self) -> None:
        """Take over what an earlier store left in the file."""
        ((ordinal, ended),) = self._database.read(
            "SELECT coalesce(max(ordinal), 0), coalesce(max(terminal_order), 0) "
            "FROM rollouts"
        )
        self._ordinal, self._ended = ordinal, ended
        for rollout in tables.read_in_states(self._database, _UNFINISHED, -1):
            self._revive(rollout)
            if rollout.status.state is RolloutState.QUEUING:
                self._queue.append(rollout.rollout_id)

    def _change(
        self, live: LiveRollout, *, writes: Sequence[Write] = (), **updates: Any
    ) -> Rollout:
        """Update a rollout's status, store it, and wake who waits for it."""
        rollout = live.change(**updates)
        has_just_ended = live.ended and live.terminal_order is None
        if has_just_ended:
            self._ended += 1
            live.terminal_order = self._ended
        status = tables.update_status(rollout, live.terminal_order)
        self._database.submit(*writes, status)
        if has_just_ended:
            self.signals.notify(signals.terminal(rollout.rollout_id))
        self.signals.notify(signals.ANY)
        return rollout

    def _give_up(
        self,
        live: LiveRollout,
        reason: Reason,
        writes: list[Write],
        *,
        charge: bool = True,
        retry: bool = True,
    ) -> Rollout:
        """Queue a fresh attempt, or let the rollout fail if it gets none."""
        payload = {"reason": reason.model_dump(), "charged": charge}
        writes += live.append(live.attempt_id, ATTEMPT_FAILED, payload)
        live.tries += charge
        live.worker = ""
        if not retry or live.tries >= self._max_attempts:
            return self._change(
                live,
                state=RolloutState.FAILED,
                last_attempt_id=live.attempt_id,
                error_message=str(reason),
                writes=writes,
            )
        rollout = self._change(
            live,
            state=RolloutState.QUEUING,
            last_attempt_id=live.next_attempt_id,
            error_message=str(reason),
            writes=writes,
        )
        self._queue.appendleft(rollout.rollout_id)
        self.signals.notify(signals.QUEUE)
        return rollout

    def _claim_now(self, worker: str, n: int) -> list[Rollout]:
        claimed: list[Rollout] = []
        with self._lock:
            most = 0 if worker in self._retired else n
            while self._queue and len(claimed) < most:
                live = self._live.get(self._queue.popleft())
                if live and live.rollout.status.state is RolloutState.QUEUING:
                    live.worker = worker
                    claimed.append(
                        self._change(
                            live,
                            state=RolloutState.RUNNING,
                            last_attempt_id=live.attempt_id,
                        )
                    )
        return claimed


def _insert(rollout: Rollout, ordinal: int) -> Write:
    try:
        return tables.insert_rollout(rollout, ordinal)
    except TypeError as error:
        raise RolloutError(
            f"Rollout {rollout.rollout_id} is not JSON: {error}"
        ) from error
