"""Define the store's types: rollouts with their states, new events, servers."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

FIRST_ATTEMPT = "0"


class RolloutState(StrEnum):
    """State of a rollout; ``SUCCEEDED`` and ``FAILED`` are final."""

    QUEUING = "queuing"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


NEXT_STATES: dict[RolloutState, frozenset[RolloutState]] = {
    RolloutState.QUEUING: frozenset({RolloutState.RUNNING, RolloutState.FAILED}),
    RolloutState.RUNNING: frozenset({RolloutState.SUCCEEDED, RolloutState.FAILED}),
    RolloutState.SUCCEEDED: frozenset(),
    RolloutState.FAILED: frozenset(),
}
"""The states that a client may set next, by the current state."""

FINAL_STATES = frozenset({RolloutState.SUCCEEDED, RolloutState.FAILED})


class Lifecycle(BaseModel):
    """The status of a rollout: its state, attempt and times.

    Attributes:
        k8s_job_name: Kubernetes job that runs the rollout, reported by a controller.
        last_attempt_id: The current attempt; None before the first one.
        error_message: Why the last attempt failed; None if no attempt failed.
        version: Number of changes, starting at 1.
        created_at: Seconds since the epoch.
        updated_at: Seconds since the epoch, of the last change.
    """

    state: RolloutState = RolloutState.QUEUING
    k8s_job_name: str | None = None
    last_attempt_id: str | None = None
    error_message: str | None = None
    version: int = 1
    created_at: float
    updated_at: float


class NewRollout(BaseModel):
    """A rollout to queue.

    Attributes:
        input: The task; see :func:`~agentgym.rollout.task_input.read_task`.
        is_train: Whether to sample with the training settings.
        config: Settings for a program that starts a process for each rollout, kept
            unchanged.
        metadata: ``scenario``, ``group`` and ``step``, or another program's values.
        rollout_id: Id of the rollout; None generates an id. If the id exists already,
            no new rollout is queued.
    """

    input: Any
    is_train: bool = True
    config: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    rollout_id: str | None = None


class Rollout(NewRollout):
    """A stored rollout, with its id and its status."""

    rollout_id: str
    status: Lifecycle


class StatusChange(BaseModel):
    """Fields of a rollout's status to overwrite; unset fields do not change."""

    model_config = ConfigDict(extra="forbid")

    state: RolloutState | None = None
    k8s_job_name: str | None = None
    last_attempt_id: str | None = None
    error_message: str | None = None


class NewEvent(BaseModel):
    """An event to add to an attempt.

    Attributes:
        event_type: ``model_request``, ``tool_call``, ``reward`` or any other.
        data: The payload; its fields depend on the type.
    """

    event_type: str
    data: dict[str, Any] = Field(default_factory=dict)


class ModelServer(BaseModel):
    """A server of a model, identified by the model and the endpoint.

    Attributes:
        model: Name of the model.
        endpoint: Base URL, e.g. ``http://127.0.0.1:8000/v1``.
        version: Training step of the weights that it serves.
    """

    model: str
    endpoint: str
    version: int = 0
