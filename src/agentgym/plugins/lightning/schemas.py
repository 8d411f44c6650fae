"""Convert between Agent Lightning 1.0's JSON and the store's types.

The package ``agentlightning`` is not needed: this module has the same fields as
``agentlightning.schemas``.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter

from agentgym.rollout.store.records import (
    ModelServer,
    NewRollout,
    RecordedCall,
    RecordedEvent,
    Rollout,
    RolloutState,
    StatusChange,
)

# Key in a new rollout's metadata. Its value is the id of an existing rollout, which is
# then returned instead of a new one.
EXISTING = "existing"


class _Creation(BaseModel):
    input: Any
    is_train: bool = True
    config: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    rollout_id: str | None = None


class _Change(BaseModel):
    status: StatusChange | None = None


SERVERS = TypeAdapter(list[ModelServer])
STATES = TypeAdapter(list[RolloutState])
_CREATIONS = TypeAdapter(list[_Creation])
# Fields that Agent Lightning expects in a rollout's config and metadata.
_CONFIG = {"timeout_seconds": 3600, "local": None, "k8s": None}
_PLACE = {"batch_idx": None, "sample_idx_in_batch": None}


def read_rollouts(body: Any) -> list[NewRollout]:
    """Parse a request's new rollouts; raise ValidationError if one is malformed.

    Some trainers choose a new id for every rollout. To get an existing rollout instead,
    they put its id into the metadata.
    """
    made = []
    for item in _CREATIONS.validate_python(body):
        metadata = item.metadata or {}
        existing = metadata.get(EXISTING)
        made.append(
            NewRollout(
                rollout_id=existing if isinstance(existing, str) else item.rollout_id,
                input=item.input,
                is_train=item.is_train,
                config=item.config or {},
                metadata=metadata,
            )
        )
    return made


def read_change(body: Any) -> StatusChange:
    """Parse a request that changes a rollout's status."""
    return _Change.model_validate(body).status or StatusChange()


def rollout_body(rollout: Rollout) -> Rollout:
    """Copy a rollout, and add defaults for fields that Agent Lightning expects."""
    config, metadata = _CONFIG | rollout.config, _PLACE | rollout.metadata
    return rollout.model_copy(update={"config": config, "metadata": metadata})


def ended_body(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as a JSON object for the list of ended rollouts."""
    task = rollout.input if isinstance(rollout.input, dict) else {}
    return {
        "rollout_id": rollout.rollout_id,
        "state": rollout.status.state,
        "data_id": str(task.get("data_id") or task.get("instance_id") or ""),
        "is_train": rollout.is_train,
    }


def event_body(
    event: RecordedEvent, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Convert an event to a dict for orjson."""
    return {
        "event_type": event.event_type,
        "rollout_id": event.rollout_id,
        "attempt_id": event.attempt_id,
        "timestamp": event.timestamp,
        "data": orjson.Fragment(event.raw) if data is None else data,
    }


def triplet_bodies(events: Sequence[RecordedEvent]) -> list[dict[str, Any]]:
    """Convert events to the ``triplet`` format, which Agent Lightning's trainer reads.

    The trainer expects at most one model call per prompt. So of several calls with the
    same prompt ids, only the last is kept. The API's default format keeps all calls.
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
