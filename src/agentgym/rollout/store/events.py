"""RecordedEvent: what happened in an attempt, and Agent Lightning's views of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym.core.trajectory import ModelCall
from agentgym.errors import RolloutError
from agentgym.rollout.store.calls import MODEL_REQUEST, RecordedCall, record_of_data


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event of an attempt; its place in the list is its identity.

    Attributes:
        event_type: ``model_request``, ``tool_call``, ``reward`` or any other.
        rollout_id: The rollout, ``attempt_id`` its try.
        timestamp: Seconds since the epoch, when it was recorded.
        payload: The model call, or what a client posted.
    """

    event_type: str
    rollout_id: str
    attempt_id: str
    timestamp: float
    payload: RecordedCall | dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """The payload as Agent Lightning's ``Event.data``."""
        if isinstance(self.payload, RecordedCall):
            return self.payload.to_data()
        return self.payload

    @property
    def call(self) -> RecordedCall | None:
        """The model call, None if this event is of another type."""
        if isinstance(self.payload, RecordedCall):
            return self.payload
        if self.event_type == MODEL_REQUEST:
            return record_of_data(self.payload)
        return None

    def to_dict(self, data: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the fields of Agent Lightning's ``Event``."""
        return {
            "event_type": self.event_type,
            "rollout_id": self.rollout_id,
            "attempt_id": self.attempt_id,
            "timestamp": self.timestamp,
            "data": self.data if data is None else data,
        }

    def without_routes(self) -> "RecordedEvent":
        """Return the event without routed experts."""
        if isinstance(self.payload, RecordedCall):
            if self.payload.routed_experts is None:
                return self
            return replace(self, payload=replace(self.payload, routed_experts=None))
        rest = {k: v for k, v in self.payload.items() if k != "routed_experts"}
        return replace(self, payload=rest)


def to_model_call(event: RecordedEvent) -> ModelCall:
    """Return the model call of a ``model_request`` event as a trajectory's step.

    Raises:
        RolloutError: The event is of another type.
    """
    call = event.call
    if call is None:
        raise RolloutError(f"A {event.event_type!r} event is no model call.")
    return call.to_model_call()


def answered_calls(events: Sequence[RecordedEvent]) -> list[RecordedCall]:
    """Return the model calls that the policy answered, in order."""
    calls = (event.call for event in events if event.event_type == MODEL_REQUEST)
    return [call for call in calls if call is not None and call.ok]


def reward_of(events: Sequence[RecordedEvent]) -> float | None:
    """Return the last reward that was reported; None if there is none."""
    for event in reversed(events):
        if event.event_type == "reward":
            value = event.data.get("value")
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
            return None
    return None


def triplets(events: Sequence[RecordedEvent]) -> list[dict[str, Any]]:
    """Return the events in Agent Lightning's ``triplet`` format.

    Of model calls with the same prompt ids only the last is kept: so that trainer
    expects it. Every call is in the other formats.
    """
    last: dict[tuple[int, ...], int] = {}
    kept: list[dict[str, Any] | None] = []
    for event in events:
        call = event.call
        if call is not None:
            key = tuple(call.prompt_ids)
            if key and key in last:
                kept[last[key]] = None
            last[key] = len(kept)
            kept.append(event.to_dict(call.to_triplet()))
        elif event.event_type == "reward":
            reward = {"value": event.data.get("value")}
            reward |= {k: v for k, v in event.data.items() if k in _REWARD_KEYS}
            kept.append(event.to_dict(reward))
        else:
            kept.append(event.to_dict())
    return [event for event in kept if event is not None]


def superseded_routes(
    events: Sequence[RecordedEvent], call: RecordedCall
) -> int | None:
    """Return the place of the event whose routed experts ``call`` makes redundant.

    Route tensors are large, and a call that continues another's context repeats
    its routes.
    """
    if call.routed_experts is None:
        return None
    for place in range(len(events) - 1, -1, -1):
        before = events[place].call
        if before is not None:
            context = before.prompt_ids + before.response_ids
            same = call.prompt_ids == before.prompt_ids
            continues = call.prompt_ids[: len(context)] == context
            has_routes = before.routed_experts is not None
            return place if has_routes and (same or continues) else None
    return None


_REWARD_KEYS = ("source", "reason")
