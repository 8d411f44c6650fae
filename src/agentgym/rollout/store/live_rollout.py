"""LiveRollout: keep an unfinished or recently ended rollout in memory."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from agentgym.errors import RolloutNotFoundError, RolloutStateError
from agentgym.rollout.store.events import ATTEMPT_FAILED, RecordedCall, RecordedEvent
from agentgym.rollout.store.rollout import (
    FINAL_STATES,
    FIRST_ATTEMPT,
    Lifecycle,
    NewRollout,
    Rollout,
    RolloutState,
)


@dataclass(slots=True)
class LiveRollout:
    """A rollout in memory. Not thread-safe: the caller must hold the store's lock.

    Attributes:
        rollout: The rollout as stored; replaced, not modified.
        hidden: Whether a client has deleted the rollout.
        worker: Name of the worker that claimed the current attempt; empty if none did.
        tries: Number of failed attempts that count against ``max_attempts``.
        calls: Number of model calls begun, by attempt and agent.
        number: Number of the rollout's last submission, from :meth:`Database.submit`.
        routed: The last model call of each attempt, by attempt id, if the call has
            routed experts.
    """

    rollout: Rollout
    hidden: bool = False
    worker: str = ""
    tries: int = 0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    number: int = 0
    routed: dict[str, RecordedEvent] = field(default_factory=dict)

    @classmethod
    def new(cls, rollout_id: str, item: NewRollout) -> Self:
        """Return a new, queued rollout."""
        now = time.time()
        status = Lifecycle(created_at=now, updated_at=now)
        return cls(
            Rollout(
                rollout_id=rollout_id,
                input=item.input,
                is_train=item.is_train,
                config=item.config,
                metadata=item.metadata,
                status=status,
            )
        )

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
        """Restore ``tries``, ``calls`` and ``routed`` from recorded events."""
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

        Routed experts (of a MoE model) are large. A call that continues the previous
        call repeats the previous call's routed experts, so they need not be stored
        twice.

        Returns:
            The event of the previous call without its routed experts, if ``call``
            repeats them; else None.
        """
        before = self.routed.pop(event.attempt_id, None)
        if call.data.get("routed_experts") is None:
            return None
        self.routed[event.attempt_id] = event
        if before is None or not call.repeats_routes(RecordedCall(before.data)):
            return None
        return before.without_routes()

    def check_current(self, attempt_id: str) -> None:
        """Raise if an attempt or its rollout is over.

        Raises:
            RolloutStateError: The attempt or the rollout is over.
            RolloutNotFoundError: A client has deleted the rollout.
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
