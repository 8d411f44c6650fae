"""Upstream: base class that answers model calls; PolicyUpstream: with a policy."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import orjson

from agentgym.core.openai import ApiError, Completion
from agentgym.core.policy import Policy
from agentgym.models.dialects.base import frame
from agentgym.models.forms import NO_FORM
from agentgym.rollout.gateway.chat import Chat, asked_form, chat_request
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.store.records import RecordedCall


class CallOutcome(NamedTuple):
    """The result of a model call: the bytes to send, and the record to store."""

    payload: bytes  # to send: the whole answer, or the end of a stream
    raw: bytes  # the record of the call as JSON, stored before the payload is sent
    status: int

    @property
    def record(self) -> RecordedCall:
        """The record of the call, parsed from ``raw``."""
        return RecordedCall(orjson.loads(self.raw))


@dataclass(slots=True)
class Exchange:
    """A model call in progress: the agent's request, and the one sent to a server."""

    call: ProxyCall
    model: str
    endpoint: str
    version: int | None  # number of the model's weight updates
    request: bytes  # the body that was sent
    retries: int = 0
    _started: float = field(default_factory=time.perf_counter)

    def answer(
        self,
        response: dict[str, Any],
        payload: bytes,
        status: int = 200,
        *,
        is_whole: bool = False,
        code: str | None = None,
    ) -> CallOutcome:
        """Convert the model's answer, or its error, to a CallOutcome.

        ``response`` is the parsed body, and ``payload`` has the bytes to send to the
        agent. With ``is_whole``, these bytes are the whole body, and are recorded; else
        ``response`` is recorded. If ``code`` is not None, it is recorded as the error's
        code. Routed experts (the experts that a MoE model used for each token) are
        recorded, but not sent to the agent.
        """
        choices = response.get("choices")
        routes = [
            choice.pop("routed_experts")
            for choice in (choices if isinstance(choices, list) else ())
            if isinstance(choice, dict) and choice.get("routed_experts")
        ]
        if routes and is_whole:
            payload = orjson.dumps(response)
        server = {"model": self.model, "version": self.version}
        record = {
            "model": self.model,
            "model_version": self.version,
            "request": orjson.Fragment(self.request),
            "response": orjson.Fragment(payload) if is_whole else response,
            "server": server | {"endpoint": self.endpoint},
            "latency_ms": 1000 * (time.perf_counter() - self._started),
            "http_status": status,
            "status": "ok" if status < 400 else "error",
            "retry_count": self.retries,
            "routed_experts": routes[0] if routes else None,
            "usage": response.get("usage"),
            "finish_reason": Completion(response).choice.get("finish_reason"),
            "agent": self.call.agent,
        }
        if code is not None:
            record["error_code"] = code
        return CallOutcome(payload, orjson.dumps(record), status)

    def refusal(self, error: ApiError, *, has_begun: bool = False) -> CallOutcome:
        """Return the outcome of a failed call."""
        body = frame(error.body) if has_begun else orjson.dumps(error.body)
        return self.answer(error.body, body, error.status)


class Upstream(ABC):
    """Base class: answers the gateway's model calls, with a local policy or over HTTP.

    Use it in an ``async with`` block.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""

    @property
    def failure(self) -> str | None:
        """Why no call can be answered any more; None if calls can be answered."""
        return None

    @property
    def troubles(self) -> list[str]:
        """Messages about model servers that failed, and so got no calls."""
        return []

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The model's name, as agents use it in requests."""

    @abstractmethod
    def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the bytes of a streamed answer as they arrive, then a CallOutcome.

        If the model fails, the CallOutcome has the error. An error before the first
        bytes is sent as JSON, also if the agent asked for a stream. If the call is
        malformed, or no server is known, an ApiError is raised instead.
        """


def check_for_policy(call: ProxyCall) -> None:
    """Check that a policy under training can answer a call; else raise an ApiError."""
    if call.path != "chat/completions":
        message = "This policy answers chat completions only; ask chat/completions."
        raise ApiError(404, message, "unsupported_path")


class PolicyUpstream(Upstream):
    """Answers model calls with a policy in this process."""

    def __init__(self, policy: Policy, settings: GatewaySettings) -> None:
        self._policy = policy
        self._settings = settings

    @property
    def failure(self) -> str | None:
        """Why the policy cannot answer any more; None if it can."""
        return self._policy.failure or None

    @property
    def model_name(self) -> str:
        """The policy's name."""
        return self._policy.model_name

    async def __aexit__(self, *_: object) -> None:
        await self._policy.release()

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the bytes of the policy's streamed answer, then a CallOutcome."""
        check_for_policy(call)
        sampling = self._settings.sampling(call)
        body, form = call.body, NO_FORM
        if self._policy.gives_forms:
            body, form = asked_form(body)
        of_team = {"session": call.session, "agent": call.agent}
        request = chat_request(body, form, in_training=True, **of_team, **sampling)
        asked = orjson.dumps(body | sampling)
        exchange = Exchange(call, self.model_name, "in-process", None, asked)
        chat = Chat(
            self._policy,
            request,
            call.body,
            call_id=f"chatcmpl-{request.seed:016x}",
            model=self.model_name,
            form=form.name,
        )
        async for item in chat.answer():
            if isinstance(item, bytes):
                yield item
            else:
                exchange.version = item.version
                yield exchange.answer(item.body, item.payload, item.status)
