"""Convert the bodies of Agent Lightning 1.0's requests and replies.

Its package is not needed: requests are validated against the same fields as in
``agentlightning.schemas``, and converted to the store's types.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentgym.rollout.store.events import RecordedCall, RecordedEvent
from agentgym.rollout.store.rollout import (
    ModelServer,
    NewEvent,
    NewRollout,
    Rollout,
    RolloutState,
    StatusChange,
)

EXISTING = "existing"
"""Field of a new rollout's metadata: the id of a rollout to return instead."""


class _LocalConfig(BaseModel):
    agent_class: str | None = None
    env_map: dict[str, str] = Field(default_factory=dict)


class _KubernetesConfig(BaseModel):
    job_template: str | None = None


class _ControllerConfig(BaseModel):
    """Settings of a rollout for a controller that starts a process for it."""

    timeout_seconds: int = 3600
    local: _LocalConfig | None = None
    k8s: _KubernetesConfig | None = None


class _BatchPlace(BaseModel):
    """Place of a rollout in a trainer's batch; other fields are kept.

    A trainer that chooses a rollout's id itself cannot ask for one that exists. With
    ``existing`` in this place it can.
    """

    model_config = ConfigDict(extra="allow")

    batch_idx: int | None = None
    sample_idx_in_batch: int | None = None


class _Creation(BaseModel):
    input: Any
    is_train: bool = True
    config: _ControllerConfig | None = None
    metadata: _BatchPlace | None = None
    rollout_id: str | None = None


class _Change(BaseModel):
    status: StatusChange | None = None


_CREATIONS = TypeAdapter(list[_Creation])
_SERVERS = TypeAdapter(list[ModelServer])
_STATES = TypeAdapter(list[RolloutState])
_CONFIG = _ControllerConfig().model_dump()
_PLACE = _BatchPlace().model_dump()


def read_rollouts(body: Any) -> list[NewRollout]:
    """Parse the rollouts of a request.

    Raises:
        ValidationError: The body is malformed; the other ``read_`` functions raise it
            too.
    """
    return [
        NewRollout(
            rollout_id=_existing(item) or item.rollout_id,
            input=item.input,
            is_train=item.is_train,
            config=item.config.model_dump() if item.config else {},
            metadata=item.metadata.model_dump() if item.metadata else {},
        )
        for item in _CREATIONS.validate_python(body)
    ]


def _existing(item: _Creation) -> str | None:
    """Return the id of the existing rollout that a request asks for, if any."""
    named = (item.metadata.model_extra or {}).get(EXISTING) if item.metadata else None
    return named if isinstance(named, str) else None


def read_change(body: Any) -> StatusChange:
    """Parse the change of a rollout's status in a request."""
    return _Change.model_validate(body).status or StatusChange()


def read_event(body: Any) -> NewEvent:
    """Parse the event in a request."""
    return NewEvent.model_validate(body)


def read_servers(body: Any) -> list[ModelServer]:
    """Parse the model servers in a request."""
    return _SERVERS.validate_python(body)


def read_states(names: Sequence[str]) -> set[RolloutState]:
    """Parse names of states."""
    return set(_STATES.validate_python(names))


def rollout_body(rollout: Rollout) -> Rollout:
    """Return a rollout with defaults for every field that clients may read."""
    config, metadata = _CONFIG | rollout.config, _PLACE | rollout.metadata
    return rollout.model_copy(update={"config": config, "metadata": metadata})


def ended_body(rollout: Rollout) -> dict[str, Any]:
    """Return an ended rollout as an item of the list of ended rollouts."""
    return {
        "rollout_id": rollout.rollout_id,
        "state": rollout.status.state,
        "data_id": _data_id(rollout.input),
        "is_train": rollout.is_train,
    }


def event_body(
    event: RecordedEvent, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return an event's fields for orjson, with its payload or with ``data``."""
    return {
        "event_type": event.event_type,
        "rollout_id": event.rollout_id,
        "attempt_id": event.attempt_id,
        "timestamp": event.timestamp,
        "data": orjson.Fragment(event.raw) if data is None else data,
    }


def triplet_bodies(events: Sequence[RecordedEvent]) -> list[dict[str, Any]]:
    """Return the events in the ``triplet`` format, which a trainer reads.

    The trainer expects one model call per list of prompt ids, so only the last of
    several is kept. The other format has every call.
    """
    kept: dict[Any, dict[str, Any]] = {}
    for place, event in enumerate(events):
        key: Any = place
        data = None
        if (call := event.call) is not None:
            key = tuple(call.completion.prompt_ids) or place
            data = _triplet(call)
        elif event.event_type == "reward":
            wording = {k: v for k, v in event.data.items() if k in ("source", "reason")}
            data = {"value": event.data.get("value"), **wording}
        kept.pop(key, None)  # the last one counts, at its own position
        kept[key] = event_body(event, data)
    return list(kept.values())


def _triplet(call: RecordedCall) -> dict[str, Any]:
    completion = call.completion
    triplet = {
        "prompt_token_ids": completion.prompt_ids,
        "response_token_ids": completion.response_ids,
        "response_log_probs": completion.logprobs,
        "server": call.server,
        "http_status": call.http_status,
        "status": "ok" if call.ok else "error",
    }
    if call.data.get("routed_experts") is not None:
        triplet["routed_experts"] = call.data["routed_experts"]
    if "error" in completion.body:
        triplet["error"] = completion.body["error"]
    return triplet


def _data_id(task: Any) -> str:
    """Return the id of a rollout's task in Agent Lightning's data sets."""
    if not isinstance(task, dict):
        return ""
    return str(task.get("data_id") or task.get("instance_id") or "")
