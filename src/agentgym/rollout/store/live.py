"""LiveRollout: a rollout in memory, with what its next steps depend on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentlightning.schemas import (
    DEFAULT_ATTEMPT_ID,
    TERMINAL_STATES,
    Rollout,
    RolloutState,
)

from agentgym.errors import RolloutStateError
from agentgym.rollout.store.events import (
    ATTEMPT_FAILED,
    MODEL_REQUEST,
    RecordedCall,
    RecordedEvent,
)


@dataclass(slots=True)
class LiveRollout:
    """A rollout in memory. Not thread-safe: the store holds its lock.

    Attributes:
        rollout: As Agent Lightning shapes it; replaced, never changed.
        worker: Who runs it.
        tries: Failed attempts that count against the limit.
        calls: Model calls begun, by attempt and agent.
        events: By attempt, in order.
    """

    rollout: Rollout
    worker: str = ""
    tries: int = 0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    events: dict[str, list[RecordedEvent]] = field(default_factory=dict)

    @property
    def state(self) -> RolloutState:
        """Where in its life the rollout is."""
        return self.rollout.status.state

    @property
    def ended(self) -> bool:
        """Whether the rollout succeeded or failed."""
        return self.state in TERMINAL_STATES

    @property
    def attempt_id(self) -> str:
        """The current attempt."""
        return str(self.rollout.status.last_attempt_id or DEFAULT_ATTEMPT_ID)

    def is_run_by(self, worker: str) -> bool:
        """Say whether a worker is running the rollout."""
        return self.state is RolloutState.RUNNING and self.worker == worker

    def restore(self, events: Iterable[RecordedEvent]) -> None:
        """Take over the events that an earlier store recorded."""
        for event in events:
            self.append(event)
            if event.call is not None:
                self.calls[event.attempt_id, event.call.agent] += 1
            elif event.event_type == ATTEMPT_FAILED:
                self.tries += bool(event.data.get("charged"))

    def append(self, event: RecordedEvent) -> None:
        """Add an event."""
        self.events.setdefault(event.attempt_id, []).append(event)

    def drop_repeated_routes(
        self, attempt_id: str, call: RecordedCall
    ) -> RecordedEvent | None:
        """Return the last model call, changed if ``call`` repeats its routed experts.

        They are large: of calls that continue each other only the last keeps them.
        """
        if call.data.get("routed_experts") is None:
            return None
        events = self.events.get(attempt_id, [])
        places = [i for i, e in enumerate(events) if e.event_type == MODEL_REQUEST]
        last = events[places[-1]] if places else None
        if last is None or not call.repeats_routes(RecordedCall(last.data)):
            return None
        events[places[-1]] = last = last.without_routes()
        return last

    def check_current(self, attempt_id: str) -> None:
        """Refuse with RolloutStateError what comes from an attempt that is over."""
        rollout_id = self.rollout.rollout_id
        if self.ended:
            raise RolloutStateError(f"Rollout {rollout_id} has ended: {self.state}.")
        current = self.attempt_id
        numbered = attempt_id.isdecimal() and current.isdecimal()
        if numbered and int(attempt_id) < int(current):
            raise RolloutStateError(
                f"Attempt {attempt_id} of rollout {rollout_id} was given up; "
                f"attempt {current} is the current one."
            )
