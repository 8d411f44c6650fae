"""Runner: run batches of rollouts to their end, even if workers die."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from agentgym.core.files import BEAT_S, Beat, no_beat
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.task import Task
from agentgym.core.trajectory import Reason, RolloutStatus, Trajectory
from agentgym.errors import RolloutError, StoreError
from agentgym.rollout.record import to_trajectory
from agentgym.rollout.store.records import MODEL_REQUEST, NewRollout, RecordedEvent
from agentgym.rollout.store.store import Store
from agentgym.rollout.workers.pool import WorkerDeath, WorkerPool
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

GIVEN_UP = Reason(kind="given up", detail="the run was ended")
HANG = Reason(kind="hang", detail="it blocked its worker")
WORKER_DIED = "its worker died"
UNREADABLE = "unreadable record"


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout to run."""

    rollout_id: str  # unique; the seeds of the model calls are derived from it
    task: Task
    train: bool  # sample with the training settings, not those of evaluations
    group: str  # a group's rollouts attempt the same task
    step: int  # number of the training step

    @classmethod
    def of_groups(
        cls, tasks: Sequence[Task], size: int, step: int, first: int = 0
    ) -> list[Self]:
        """Return the requests of a training step: ``size`` rollouts (a group) per task.

        ``first`` is the number of the first group, if the step already has groups.
        """
        groups = [
            (task, f"s{step:05d}-t{at:03d}") for at, task in enumerate(tasks, first)
        ]
        return [
            cls(f"{group}-{attempt:02d}", task, train=True, group=group, step=step)
            for task, group in groups
            for attempt in range(size)
        ]


class Runner:
    """Runs batches of rollouts on a pool of workers.

    The store retries a failed attempt a few times in a new environment. Then the
    rollout is dropped, with the reason of the last failure. If a worker dies because a
    known rollout blocked it, this counts as a failed attempt of that rollout only. If
    the cause is unknown, all rollouts of the worker are suspects. Each suspect is then
    retried while nothing else runs. So only the rollout that kills workers fails: after
    it killed ``max_attempts`` workers.
    """

    def __init__(self, store: Store, *, scenario: str, max_attempts: int) -> None:
        self._store = store
        self._scenario = scenario
        self._max_attempts = max_attempts
        self._lock = threading.Lock()
        self._suspects: dict[str, str] = {}
        self._strikes: Counter[str] = Counter()
        self._on_trial: str | None = None

    def run(
        self,
        requests: Sequence[RolloutRequest],
        pool: WorkerPool,
        on_done: Callable[[Trajectory], None],
        beat: Beat = no_beat,
    ) -> list[Trajectory]:
        """Run every request to its end, and return the trajectories in the same order.

        Dropped rollouts have trajectories, too. ``on_done`` is called with each
        trajectory as soon as its rollout ends; all are on disk when the method returns.
        ``beat`` is called every half second, with the reason if the store waits for the
        disk, else None. If ``on_done`` or ``beat`` raises an error, the remaining
        rollouts end as failed.
        """
        asked = {request.rollout_id: request for request in requests}
        waiting = set(asked)
        done: dict[str, Trajectory] = {}
        self._store.flush(beat)  # so that queueing does not wait for the disk
        self._store.create_rollouts([self._create(r) for r in requests])
        try:
            with self._store.ends(waiting) as ends:
                while waiting:
                    for rollout_id in ends.wait(BEAT_S):
                        waiting.remove(rollout_id)
                        done[rollout_id] = self._read(asked[rollout_id])
                        on_done(done[rollout_id])
                    beat(self._store.stalled)
                    self._try_suspects(waiting)
                    if pool.failure is not None:
                        raise RolloutError(f"The workers cannot start: {pool.failure}")
            self._store.flush(beat)
        finally:
            for rollout_id in waiting:
                with suppress(RolloutError):  # deleted, or the store failed
                    self._store.fail(rollout_id, GIVEN_UP)
        return [done[request.rollout_id] for request in requests]

    def worker_died(self, death: WorkerDeath) -> None:
        """Requeue the rollouts of a dead worker. Callable from any thread."""
        worker, reason = death.worker, Reason(kind=WORKER_DIED, detail=death.reason)
        for rollout_id in self._store.retire(worker):
            try:
                if death.blamed == rollout_id:
                    self._store.requeue(rollout_id, HANG, worker=worker)
                elif death.blamed is not None:
                    self._store.requeue(rollout_id, reason, charge=False, worker=worker)
                else:
                    with self._lock:
                        self._suspect(rollout_id, worker, reason)
            except RolloutError:
                logger.exception("rollout %s has lost its worker", rollout_id)

    def _read(self, request: RolloutRequest) -> Trajectory:
        """Return a rollout's trajectory; a dropped one if the record is unreadable."""
        store, rollout_id = self._store, request.rollout_id
        events: list[RecordedEvent] = []
        try:
            attempts = store.history(rollout_id)
            events = [event for found in attempts.values() for event in found]
            return to_trajectory(store.get(rollout_id), attempts)
        except StoreError:
            raise
        except Exception as error:  # clients may have posted any data
            logger.warning("rollout %s cannot be read", rollout_id, exc_info=True)
            asked = sum(event.event_type == MODEL_REQUEST for event in events)
            return Trajectory(
                rollout_id=rollout_id,
                scenario=self._scenario,
                task_id=request.task.id,
                family=request.task.family,
                level=request.task.level,
                group=request.group,
                status=RolloutStatus.DROPPED,
                reason=Reason.of_error(error, UNREADABLE),
                unused_calls={DEFAULT_AGENT: {UNREADABLE: asked}} if asked else {},
            )

    def _suspect(self, rollout_id: str, worker: str, reason: Reason) -> None:
        """Mark a rollout to be retried alone; fail it after too many worker deaths."""
        if rollout_id == self._on_trial:
            self._strikes[rollout_id] += 1
        if self._strikes[rollout_id] >= self._max_attempts:
            detail = f"{reason.detail}, each time it ran alone"
            died = Reason(kind=f"crash: {WORKER_DIED}", detail=detail)
            self._store.fail(rollout_id, died)
        else:
            self._suspects[rollout_id] = worker

    def _try_suspects(self, waiting: set[str]) -> None:
        """Retry the next suspect if nothing else runs."""
        with self._lock:
            # A suspect whose result arrived after the worker's death is not retried.
            while self._suspects and waiting <= self._suspects.keys():
                rollout_id = self._on_trial = next(iter(self._suspects))
                worker = self._suspects.pop(rollout_id)
                reason = Reason(kind=WORKER_DIED)
                self._store.requeue(rollout_id, reason, charge=False, worker=worker)

    def _create(self, request: RolloutRequest) -> NewRollout:
        return NewRollout(
            rollout_id=request.rollout_id,
            input=request.task.model_dump(mode="json"),
            is_train=request.train,
            metadata={
                "scenario": self._scenario,
                "group": request.group,
                "step": request.step,
            },
        )
