"""Define the records of the store: rollouts, events, model calls and servers."""

import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from operator import eq
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentgym.core.openai import DEFAULT_AGENT, Completion, wants_call
from agentgym.core.trajectory import MOST_REWARD, Grammar, ModelCall, RequestedCall
from agentgym.errors import RecordError, first_problem
from agentgym.security.redaction import quoted

FIRST_ATTEMPT = "0"


class RolloutState(StrEnum):
    """State of a rollout; ``SUCCEEDED`` and ``FAILED`` are final."""

    QUEUING = "queuing"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


# The states that a client may set next, by the current state.
NEXT_STATES: dict[RolloutState, frozenset[RolloutState]] = {
    RolloutState.QUEUING: frozenset({RolloutState.RUNNING, RolloutState.FAILED}),
    RolloutState.RUNNING: frozenset({RolloutState.SUCCEEDED, RolloutState.FAILED}),
    RolloutState.SUCCEEDED: frozenset(),
    RolloutState.FAILED: frozenset(),
}

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
    # Settings for a program that starts a process for each rollout, kept unchanged.
    config: dict[str, Any] = Field(default_factory=dict)
    # `scenario`, `group` and `step`, or another program's values.
    metadata: dict[str, Any] = Field(default_factory=dict)
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


MODEL_REQUEST = "model_request"
# Type of the event that says why an attempt was abandoned.
ATTEMPT_FAILED = "attempt_failed"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One model call: the payload of Agent Lightning's ``model_request`` event.

    Clients may post such events too, so most fields may be missing.
    """

    data: dict[str, Any]

    @property
    def agent(self) -> str:
        """Name of the agent that made the call."""
        return self.data.get("agent") or DEFAULT_AGENT

    @property
    def completion(self) -> Completion:
        """The model's answer, or the body of the error response."""
        response = self.data.get("response")
        return Completion(response if isinstance(response, dict) else {})

    @property
    def http_status(self) -> int:
        """HTTP status of the response; 400 and above are errors."""
        failed = self.data.get("status") == "error"
        return self.data.get("http_status") or (500 if failed else 200)

    @property
    def ok(self) -> bool:
        """Whether the model answered without an error."""
        return self.http_status < 400

    @property
    def error(self) -> dict[str, Any]:
        """OpenAI's error object; empty if there is none."""
        error = self.completion.body.get("error")
        return error if isinstance(error, dict) else {}

    @property
    def server(self) -> dict[str, Any]:
        """The server's ``model`` name, and the ``version`` of its weights."""
        found = self.data.get("server") or {}
        model = found.get("model") or self.data.get("model") or ""
        version = found.get("version", self.data.get("model_version"))
        return {"model": model, "version": version}

    def to_model_call(self) -> ModelCall:
        """Convert the call to a step of a trajectory; values stay unchanged."""
        completion, fields = self.completion, self._step()
        grammar = completion.body.get("grammar")
        fields["tool_calls"] = [RequestedCall(**call) for call in fields["tool_calls"]]
        return ModelCall.model_construct(
            **fields,
            prompt_ids=completion.prompt_ids,
            response_ids=completion.response_ids,
            logprobs=completion.logprobs or [],
            grammar=None if grammar is None else Grammar.model_validate(grammar),
        )

    def to_view(self) -> dict[str, Any]:
        """Return the call's fields as JSON values, with token counts instead of ids."""
        fields, completion = self._step(), self.completion
        prompt, response = completion.prompt_ids, completion.response_ids
        if prompt or response:
            fields["prompt_tokens"] = len(prompt)
            fields["response_tokens"] = len(response)
        return fields

    def _step(self) -> dict[str, Any]:
        """Return the fields of a :class:`ModelCall` as JSON, without token ids."""
        request, completion = self.data.get("request") or {}, self.completion
        choice, counts = completion.choice, completion.token_counts
        message = choice.get("message") or {}
        calls = [
            {
                "id": call.get("id") or "",
                "name": call["function"]["name"],
                "arguments": call["function"].get("arguments") or "",
            }
            for call in message.get("tool_calls") or []
        ]
        return {
            "agent": self.agent,
            "messages": request.get("messages") or [],
            "tools": request.get("tools") or [],
            "content": content_text(message.get("content", choice.get("text"))),
            "tool_calls": calls,
            "wants_call": wants_call(request.get("tool_choice")),
            "model_version": self.server["version"] or 0,
            "finish_reason": choice.get("finish_reason") or "stop",
            "latency_ms": self.data.get("latency_ms") or 0.0,
            "prompt_tokens": counts.get("prompt_tokens"),
            "response_tokens": counts.get("response_tokens"),
        }


def check_event(kind: str, data: dict[str, Any]) -> None:
    """Check a posted model call or reward; raise RecordError if it is malformed."""
    wording = None
    if kind == MODEL_REQUEST:
        call = RecordedCall(data)
        try:
            if call.ok:
                said = _with_message(call.completion)
                wording = said.problem or said.length_problem or said.logprob_problem
                ModelCall.model_validate(vars(call.to_model_call()))
        except ValidationError as error:
            wording = wording or first_problem(error)
        except (TypeError, AttributeError, KeyError) as error:
            wording = wording or f"its shape is unknown ({error})"
    elif kind == "reward":
        value = data.get("value")
        if not isinstance(value, int | float) or isinstance(value, bool):
            wording = f"its value is {quoted(value)} and no number"
        elif not abs(value) <= MOST_REWARD:
            wording = f"its value is {quoted(value)}, and {MOST_REWARD:g} is the most"
    if wording is not None:
        raise RecordError(f"This {kind!r} event cannot be recorded: {wording}.")


@dataclass(frozen=True)
class RecordedEvent:
    """One event of an attempt; its payload is JSON text, which saves memory."""

    event_type: str  # ``model_request``, ``tool_call``, ``reward`` or any other
    rollout_id: str
    attempt_id: str
    timestamp: float  # of recording, in seconds since the epoch
    raw: bytes  # the payload as JSON

    @classmethod
    def now(cls, kind: str, rollout_id: str, attempt_id: str, data: Any) -> Self:
        """Create an event at the current time; RecordError if ``data`` is not JSON."""
        try:
            raw = orjson.dumps(data)
        except TypeError as error:
            raise RecordError(f"A {kind!r} event is not JSON: {error}") from error
        return cls(kind, rollout_id, attempt_id, time.time(), raw)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The parsed payload."""
        data: dict[str, Any] = orjson.loads(self.raw)
        return data

    @property
    def call(self) -> RecordedCall | None:
        """The event as a model call; None if it is another kind of event."""
        return RecordedCall(self.data) if self.event_type == MODEL_REQUEST else None

    def without_routes(self) -> "RecordedEvent":
        """Return a copy of the event without the routed experts of a MoE model."""
        rest = {k: v for k, v in self.data.items() if k != "routed_experts"}
        return replace(self, raw=orjson.dumps(rest))


def answered_calls(events: Sequence[RecordedEvent]) -> list[RecordedCall]:
    """Return the model calls that were answered without an error, in order."""
    calls = (event.call for event in events)
    return [call for call in calls if call is not None and call.ok]


def by_attempt(events: Iterable[RecordedEvent]) -> dict[str, list[RecordedEvent]]:
    """Group a rollout's events by attempt id; keep their order."""
    found: dict[str, list[RecordedEvent]] = {}
    for event in events:
        found.setdefault(event.attempt_id, []).append(event)
    return found


def decompressed(data: str | bytes) -> bytes:
    """Return an event's JSON from its column in SQLite; model calls are compressed."""
    return data.encode() if isinstance(data, str) else zlib.decompress(data)


def pack_calls(calls: Iterable[RecordedCall]) -> list[dict[str, Any]]:
    """Convert model calls to compact JSON, without token ids.

    :func:`unpack_calls` rebuilds them. Messages that repeat those of the agent's
    previous call are left out; ``repeats`` is their number. ``tools`` is left out if it
    is the same as in that call.
    """
    packed: list[dict[str, Any]] = []
    last: dict[str, tuple[list[Any], Any]] = {}
    for recorded in calls:
        call = recorded.to_view()
        messages, tools = call["messages"], call["tools"]
        before, known = last.get(call["agent"], ([], None))
        shared = map(eq, messages, before)
        call["repeats"] = repeats = sum(takewhile(bool, shared))
        call["messages"] = messages[repeats:]
        if tools == known:
            del call["tools"]
        last[call["agent"]] = messages, tools
        packed.append(call)
    return packed


def unpack_calls(packed: Sequence[dict[str, Any]]) -> list[ModelCall]:
    """Rebuild the model calls from the output of :func:`pack_calls`."""
    calls: list[ModelCall] = []
    last: dict[str, ModelCall] = {}
    for given in packed:
        fields = dict(given)
        before = last.get(fields["agent"])
        if repeats := fields.pop("repeats"):
            assert before is not None
            fields["messages"] = before.messages[:repeats] + fields["messages"]
        if "tools" not in fields:
            assert before is not None
            fields["tools"] = before.tools
        fields["tool_calls"] = [
            RequestedCall.model_construct(**call) for call in fields["tool_calls"]
        ]
        call = last[fields["agent"]] = ModelCall.without_tokens(**fields)
        calls.append(call)
    return calls


def _with_message(completion: Completion) -> Completion:
    """Add an empty message to a completion that has only token ids."""
    body, choice = completion.body, completion.choice
    if not choice.get("token_ids") or choice.keys() & {"message", "text"}:
        return completion
    return Completion({**body, "choices": [{**choice, "message": {}}]})


def content_text(content: Any) -> str | None:
    """Return a message's text; if the content is a list of parts, join their texts."""
    if not isinstance(content, list):
        return None if content is None else str(content)
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(str(text or "") for text in texts)
