"""Define the gateway's settings, its model calls, and replies in OpenAI's form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Any, Literal

import orjson
from aiohttp import web

from agentgym.core.openai import CONTEXT_LENGTH, ApiError
from agentgym.errors import (
    ContextLengthError,
    EngineError,
    GrammarError,
    PromptError,
)
from agentgym.rollout.gateway.wire import load_json
from agentgym.rollout.wording import NO_WORDING, Wording
from agentgym.security.redaction import quoted

Mode = Literal["train", "val"]

STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
}

_JSON = {"Content-Type": "application/json"}
_TOKENS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of a :class:`~agentgym.rollout.gateway.gateway.Gateway`.

    Attributes:
        port: Port to listen on; 0 takes any free port.
        api_key: Bearer key. None creates a random key; ``""`` requires no key.
        model_name: Model name of registered servers; not used if the gateway has a
            policy, which has its own name.
        seed: The run's seed, from which every call's seed is derived.
        train_temperature: Temperature of calls in mode ``train``; None uses the
            agent's temperature.
        val_temperature: Temperature of calls in mode ``val``; None uses the agent's
            temperature.
        provider_temperature: Temperature for a provider's model if the agent sets none;
            None uses the provider's default.
        max_tokens: Most tokens of one answer of the policy; an agent may ask for
            fewer.
        wording: Texts that are sent instead of the agent's own.
        include_log_probs: In training, ask remote servers for log-probabilities.
        include_routed_experts: In training, ask remote servers of MoE models for the
            routed experts: the experts that processed each token.
        max_in_flight: Model calls answered at the same time; further calls wait.
        max_waiting: Most calls that may wait; any more are refused with status 429.
        max_wait_s: Seconds that a call may wait before it is refused with status 429.
        max_body_bytes: Most bytes of one request.
        header_timeout_s: Seconds for a request's head to arrive on a new connection.
        body_timeout_s: Seconds for the body to arrive, or for a client to read a piece
            of a stream.
        grace_s: Seconds that running calls may take after the gateway is closed.
        upstreams: Base URLs of model servers to use while none is registered;
            ``upstream_key`` is their API key.
        upstream_attempts: Most attempts of one call at remote servers.
        upstream_timeout_s: Timeout of one attempt in seconds.
        upstream_backoff_s: Seconds to wait before the second attempt; the wait doubles
            with each further attempt, up to 8 s.
    """

    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    model_name: str = "policy"
    seed: int = 0
    train_temperature: float | None = 1.0
    val_temperature: float | None = 0.7
    provider_temperature: float | None = None
    max_tokens: int = 256
    wording: Wording = NO_WORDING
    include_log_probs: bool = True
    include_routed_experts: bool = False
    max_in_flight: int = 512
    max_waiting: int = 4096
    max_wait_s: float = 60.0
    max_body_bytes: int = 64 * 2**20
    upstreams: tuple[str, ...] = ()
    upstream_key: str = field(default="", repr=False)
    header_timeout_s: float = 15.0
    body_timeout_s: float = 60.0
    grace_s: float = 0.2
    upstream_attempts: int = 6
    upstream_timeout_s: float = 300.0
    upstream_backoff_s: float = 0.5

    def sampling(self, call: "ProxyCall") -> dict[str, Any]:
        """Return the temperature, ``max_tokens`` and seed of a call.

        If the settings have no temperature, the agent's temperature is used, by default
        1. An agent can only lower ``max_tokens``. The seed, from 0 to 2**63 - 1, is
        derived from the run's seed, the rollout, the attempt, the agent and the call's
        number. So the seed does not depend on the order in which the calls of several
        agents arrive.

        Raises:
            ApiError: Status 400: the agent's temperature or token limit is invalid.
        """
        body = call.body
        own = self.train_temperature if call.mode == "train" else self.val_temperature
        if own is None:
            own = asked_temperature(body, 1.0)
        asked = asked_tokens(body, self.max_tokens)
        key = f"{self.seed}/{call.session}/{call.index}".encode()
        seed = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1
        most = min(asked, self.max_tokens)
        return {"temperature": own, "max_tokens": most, "seed": seed}


@dataclass(frozen=True, slots=True)
class ProxyCall:
    """One model call of an agent.

    Attributes:
        mode: ``train`` or ``val``; selects the temperature.
        path: ``chat/completions`` or ``completions``.
        agent: Name of the agent; a team has several agents.
        index: Number of earlier calls of this agent in this attempt.
        body: The request's JSON object, with the texts of the gateway's ``wording``.
    """

    rollout_id: str
    attempt_id: str
    mode: Mode
    path: str
    agent: str
    index: int
    body: dict[str, Any]

    @property
    def streams(self) -> bool:
        """Whether the answer is to be streamed."""
        return bool(self.body.get("stream"))

    @property
    def session(self) -> str:
        """Session id, shared by the calls of one agent in one attempt."""
        return f"{self.rollout_id}/{self.attempt_id}/{self.agent}"


def reply(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Convert a value, which may contain pydantic models, to a JSON response."""
    body = orjson.dumps(value, default=lambda m: orjson.Fragment(m.model_dump_json()))
    return answer_json(body, status, headers)


def answer_json(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response whose body is already JSON."""
    return web.Response(body=body, status=status, headers={**_JSON, **(headers or {})})


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a request's body as a JSON object; an empty body gives an empty object.

    Raises:
        ApiError: Status 400: the body is not a JSON object.
    """
    try:
        body = load_json(raw or b"{}")
    except ValueError as error:
        message = f"Invalid JSON in request body: {error}"
        raise ApiError(400, message, "invalid_json") from None
    if not isinstance(body, dict):
        raise ApiError(400, "Request body must be a JSON object", "invalid_json")
    return body


def check_call(path: str, body: Mapping[str, Any]) -> None:
    """Raise an ApiError (400) if a field that every server requires is invalid."""
    if path == "completions":
        if not isinstance(body.get("prompt"), str | list) or not body["prompt"]:
            message = "'prompt' must be a text or a list."
            raise ApiError(400, message, "invalid_prompt")
    else:
        messages = body.get("messages")
        if not are_objects(messages) or not messages:
            message = "'messages' must be a list of objects."
            raise ApiError(400, message, "invalid_messages")
    if not isinstance(body.get("stream"), bool | None):
        message = f"stream = {quoted(body['stream'])} is neither true nor false."
        raise ApiError(400, message, "invalid_value")


def are_objects(value: Any) -> bool:
    """Return whether a JSON value is a list of objects."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def asked_temperature(body: Mapping[str, Any], default: float) -> float:
    """Return the temperature in a request, or ``default``; 400 if it is invalid."""
    asked = body.get("temperature")
    if asked is None:
        return default
    if type(asked) not in (int, float) or not 0 <= asked < inf:
        message = f"temperature = {quoted(asked)} is not a number of at least 0."
        raise ApiError(400, message, "invalid_value")
    return float(asked)


def asked_tokens(body: Mapping[str, Any], default: int) -> int:
    """Return a request's limit of tokens, or ``default``; 400 if it is invalid."""
    named = ((name, body.get(name)) for name in _TOKENS)
    name, asked = next((n for n in named if n[1] is not None), ("", default))
    if type(asked) is not int or asked < 1:
        message = f"{name} = {quoted(asked)} is not a positive whole number."
        raise ApiError(400, message, "invalid_value")
    return asked


def model_card(name: str) -> dict[str, Any]:
    """Return a model's entry for OpenAI's list of models."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "agentgym"}


def models_reply(names: Sequence[str]) -> web.Response:
    """Return a response with OpenAI's list of models."""
    return reply({"object": "list", "data": [model_card(name) for name in names]})


def engine_error(error: Exception) -> ApiError:
    """Convert an exception of the engine to the API error that the agent gets."""
    if isinstance(error, ContextLengthError):
        return ApiError(400, str(error), CONTEXT_LENGTH)
    if isinstance(error, GrammarError):
        return ApiError(400, str(error), "unsupported_schema")
    if isinstance(error, PromptError):
        return ApiError(400, str(error), "invalid_messages")
    known = isinstance(error, EngineError)
    message = str(error) if known else f"{type(error).__name__}: {error}"
    return ApiError(500, message, "engine_error", "server_error")
