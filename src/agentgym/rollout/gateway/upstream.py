"""Upstream: where the gateway gets its answers; PolicyUpstream: from this process."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from agentgym.core.openai import ApiError, Completion
from agentgym.core.policy import Policy
from agentgym.models.dialects.base import frame
from agentgym.models.forms import NO_FORM
from agentgym.rollout.gateway.chat import Chat, asked_form, chat_request, refused_option
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.store.events import RecordedCall


class CallOutcome(NamedTuple):
    """How a model call ended.

    Attributes:
        payload: The (last) bytes to send.
        raw: JSON to record before the bytes are sent.
        status: HTTP status.
        routed: Whether the record has routed experts.
    """

    payload: bytes
    raw: bytes
    status: int
    routed: bool = False

    @property
    def record(self) -> RecordedCall:
        """The record, parsed."""
        return RecordedCall(orjson.loads(self.raw))


@dataclass(slots=True)
class Exchange:
    """A model call in progress: the agent's request, and the one sent to a server."""

    call: ProxyCall
    model: str
    endpoint: str
    version: int | None  # updates that the model had had
    request: bytes  # as sent
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
        """Return the outcome; routed experts are recorded, but not passed on.

        Args:
            response: The parsed body.
            payload: The (last) bytes to send.
            status: HTTP status.
            is_whole: Whether the payload is the whole body, to be recorded unchanged.
            code: Error code, if the body has none in OpenAI's form.
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
        return CallOutcome(payload, orjson.dumps(record), status, bool(routes))

    def refusal(self, error: ApiError, *, has_begun: bool = False) -> CallOutcome:
        """Return an error as the outcome, inside the stream if it has begun."""
        body = frame(error.body) if has_begun else orjson.dumps(error.body)
        return self.answer(error.body, body, error.status)


class Upstream(ABC):
    """Answers model calls."""

    @property
    def failure(self) -> str | None:
        """Why it can never answer again; None while it can."""
        return None

    @property
    def troubles(self) -> list[str]:
        """Messages about failures of the servers."""
        return []

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The model name that agents see."""

    @abstractmethod
    def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the bytes of a streamed answer as they arrive, then a CallOutcome.

        A failure of the model is a CallOutcome too. Before any bytes, it is sent as
        JSON instead of a stream.

        Raises:
            ApiError: The call was not made: it is malformed, or there is no server.
        """

    async def start(self) -> None:
        """Prepare; called on the gateway's event loop."""

    async def close(self) -> None:
        """Release the resources of :meth:`start`."""


class PolicyUpstream(Upstream):
    """Answers from a policy in this process."""

    def __init__(self, policy: Policy, settings: GatewaySettings) -> None:
        self._policy = policy
        self._settings = settings

    @property
    def failure(self) -> str | None:
        """Why the policy cannot answer any more."""
        return self._policy.failure or None

    @property
    def model_name(self) -> str:
        """The policy's name."""
        return self._policy.model_name

    async def close(self) -> None:
        """Close the policy's connections."""
        await self._policy.release()

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the policy's answer."""
        if call.path != "chat/completions":
            message = "This policy answers chat completions only; ask chat/completions."
            raise ApiError(404, message, "unsupported_path")
        if call.body.get("stop"):  # the answer would differ from the trained tokens
            raise refused_option("stop", call.body)
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
