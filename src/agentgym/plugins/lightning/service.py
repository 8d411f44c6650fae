"""GatewayService: serve an external trainer, with or without its own workers."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agentgym.core.collector import calm_collector
from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import Reason
from agentgym.errors import RolloutError
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.runner import HANG, WORKER_DIED
from agentgym.rollout.session import worker_log
from agentgym.rollout.store.records import RolloutState
from agentgym.rollout.store.store import Store
from agentgym.rollout.workers.pool import WorkerDeath, WorkerPool, WorkerSpec
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.audit import AuditLog

_GROUP_COMMIT_S = 0.005
"""Most seconds that a response waits until its writes are committed."""
_RESTARTED = Reason(kind="the gateway was restarted")


@dataclass(eq=False, repr=False)
class GatewayService:
    """Serves Agent Lightning's protocol within a ``with`` block.

    An external trainer queues rollouts, and registers the servers of its policy.
    ``workers`` is the number of processes that run the rollouts; a rollout that crashes
    has up to ``config.max_attempts`` attempts. If ``workers`` is 0, Agent Lightning's
    controller starts a process for each rollout.

    ``database`` is the SQLite file of the rollouts. The unfinished rollouts of an
    existing file are continued. The workers' log is a file next to it.
    """

    database: Path
    settings: GatewaySettings
    config: TrainingConfig
    workers: int = 0
    _pool: WorkerPool | None = field(default=None, init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        config = self.config
        with ExitStack() as stack:
            stack.enter_context(calm_collector())
            self.store = stack.enter_context(
                Store(
                    self.database,
                    max_attempts=config.max_attempts,
                    group_commit_s=_GROUP_COMMIT_S,
                    goes_on=True,
                    private=config.private,
                )
            )
            audit = AuditLog(
                self.database.with_name(AUDIT_FILE), private=config.private
            )
            self.gateway = stack.enter_context(
                Gateway(self.store, settings=self.settings, audit=audit)
            )
            if self.workers:
                # workers of an earlier process were running these
                for rollout in self.store.list_rollouts({RolloutState.RUNNING}):
                    self.store.requeue(rollout.rollout_id, _RESTARTED, charge=False)
                spec = WorkerSpec.of(
                    config,
                    gateway=self.gateway.url,
                    api_key=self.gateway.api_key,
                    model=self.gateway.model_name,
                    audit=audit.path,
                )
                self._pool = stack.enter_context(
                    WorkerPool(
                        spec,
                        count=self.workers,
                        log=worker_log(config, self.database.parent),
                        on_death=self._worker_died,
                    )
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def failure(self) -> str | None:
        """Why rollouts cannot run any more; None if they can."""
        if (failure := self.store.failure) is not None:
            return failure
        failure = None if self._pool is None else self._pool.failure
        return None if failure is None else f"The workers cannot start: {failure}"

    @property
    def troubles(self) -> list[str]:
        """Messages about failures of the model servers and the store."""
        stalled = self.store.stalled
        message = f"The rollout store {self.database} cannot be written: {stalled}."
        return self.gateway.troubles + ([] if stalled is None else [message])

    def _worker_died(self, death: WorkerDeath) -> None:
        """Requeue the rollouts of a dead worker. Callable from any thread.

        If the rollout that blocked the worker is known, only this rollout is charged
        with a failed attempt; otherwise all of the worker's rollouts are.
        """
        for rollout_id in self.store.retire(death.worker):
            blamed = rollout_id == death.blamed
            reason = Reason(kind=WORKER_DIED, detail=death.reason)
            with suppress(RolloutError):  # the trainer has deleted it
                self.store.requeue(
                    rollout_id,
                    HANG if blamed else reason,
                    charge=blamed or death.blamed is None,
                    worker=death.worker,
                )
