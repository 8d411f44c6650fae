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
    """The status of a rollout: its state, current attempt and times."""

    state: RolloutState = RolloutState.QUEUING
    k8s_job_name: str | None = None  # reported by a controller
    last_attempt_id: str | None = None  # the current one; None before the first
    error_message: str | None = None  # why the last attempt failed
    version: int = 1  # number of changes, starting at 1
    created_at: float  # seconds since the epoch
    updated_at: float  # time of the last change


class NewRollout(BaseModel):
    """A rollout to queue.

    If a rollout with its id exists, that one is used, and nothing is queued.
    """

    input: Any  # the task; see task_input.read_task()
    is_train: bool = True  # whether to sample with the training settings
    config: dict[str, Any] = Field(default_factory=dict)
    """Settings for a program that starts a process for each rollout, kept unchanged."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """``scenario``, ``group`` and ``step``, or another program's values."""
    rollout_id: str | None = None  # None generates an id


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
    """An event to add to an attempt."""

    event_type: str  # ``model_request``, ``tool_call``, ``reward`` or any other
    data: dict[str, Any] = Field(default_factory=dict)


class ModelServer(BaseModel):
    """A server of a model, identified by the model's name and the endpoint."""

    model: str
    endpoint: str  # base URL, e.g. http://127.0.0.1:8000/v1
    version: int = 0  # training step of the weights that it serves
