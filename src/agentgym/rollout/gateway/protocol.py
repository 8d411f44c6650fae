"""Define the settings, model calls, and responses of the gateway; parse its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Any, Literal

import orjson
from aiohttp import web
from pydantic_core import from_json

from agentgym.core.openai import CONTEXT_LENGTH, ApiError
from agentgym.errors import ContextLengthError, EngineError, GrammarError, PromptError
from agentgym.rollout.prompt_overrides import Wording
from agentgym.security.redaction import quoted

# Maximum nesting depth of objects and lists; deeper JSON could not be read back.
MOST_NESTED = 200


def invalid(message: str, code: str = "invalid_value", status: int = 400) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(status, message, code)


def load_json(raw: bytes) -> Any:
    """Parse JSON; refuse values that could not be stored and read back unchanged."""
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        message = str(error)
        if message.startswith("recursion limit"):
            message = f"it is nested more than {MOST_NESTED} deep"
        raise ValueError(message) from None
    try:
        orjson.dumps(value)
        orjson.loads(raw)  # other parsers refuse 1e400, and other numbers beyond floats
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return value


async def read_json(request: web.BaseRequest, empty: bytes = b"") -> Any:
    """Parse a request's body as JSON; an empty body stands for ``empty``."""
    try:
        return load_json(await request.read() or empty)
    except ValueError as error:
        message = f"Invalid JSON in request body: {error}"
        raise invalid(message, "invalid_json", 422) from None


def is_writable(text: str) -> bool:
    """Return whether a header or URL text can be stored (is valid UTF-8)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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

    If ``train_temperature`` or ``val_temperature`` is None, the temperature in the
    agent's request is used, by default 1. If ``provider_temperature`` is None, requests
    without a temperature use the provider's default.
    """

    host: str = "127.0.0.1"
    port: int = 0  # to listen on; 0 takes any free port
    api_key: str | None = None  # None creates a random key; "" requires no key
    model_name: str = "policy"  # of registered servers; a policy has its own name
    seed: int = 0  # of the run; the seed of every call is derived from it
    train_temperature: float | None = 1.0
    val_temperature: float | None = 0.7
    provider_temperature: float | None = None  # if the agent sets none
    max_tokens: int = 256  # of one answer of the policy; an agent may ask for fewer
    # Texts that are sent instead of the agent's own.
    wording: Wording = field(default_factory=Wording)
    include_log_probs: bool = True  # in training, from remote servers
    max_in_flight: int = 512  # model calls answered at the same time; others wait
    max_waiting: int = 4096  # any more calls are refused with status 429
    header_timeout_s: float = 15.0  # for a request's head on a new connection
    max_body_bytes: int = 64 * 2**20
    upstreams: tuple[str, ...] = ()  # URLs of model servers while none is registered
    upstream_key: str = field(default="", repr=False)  # their API key
    body_timeout_s: float = 60.0  # for a body, or for a client to read a stream's piece
    grace_s: float = 0.2  # that running calls may take after the gateway is closed
    upstream_attempts: int = 6  # of one call at remote servers
    upstream_timeout_s: float = 300.0  # of one attempt
    upstream_backoff_s: float = 0.5  # before the second attempt; doubles, up to 8 s

    def sampling(self, call: "ProxyCall") -> dict[str, Any]:
        """Return the temperature, ``max_tokens`` and seed of a call.

        If the settings have no temperature, the agent's temperature is used, by default
        1. An agent can only lower ``max_tokens``. The seed, from 0 to 2**63 - 1, is
        derived from the run's seed, the rollout, the attempt, the agent and the call's
        number. So the seed does not depend on the order in which the calls of several
        agents arrive.
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
    """One model call that an agent sent to the gateway."""

    rollout_id: str
    attempt_id: str
    mode: Mode  # selects the temperature
    path: str  # ``chat/completions`` or ``completions``
    agent: str  # a team has several agents
    index: int  # number of earlier calls of this agent in this attempt
    body: dict[str, Any]  # with the texts of the gateway's ``wording``

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
    """Return an HTTP response with a body that is JSON already."""
    return web.Response(body=body, status=status, headers={**_JSON, **(headers or {})})


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a request's body as a JSON object; return {} for an empty body."""
    try:
        body = load_json(raw or b"{}")
    except ValueError as error:
        message = f"Invalid JSON in request body: {error}"
        raise invalid(message, "invalid_json") from None
    if not isinstance(body, dict):
        raise invalid("Request body must be a JSON object", "invalid_json")
    return body


def check_call(path: str, body: Mapping[str, Any]) -> None:
    """Check the fields ``messages`` (or ``prompt``) and ``stream`` of a model call."""
    if path == "completions":
        if not isinstance(body.get("prompt"), str | list) or not body["prompt"]:
            raise invalid("'prompt' must be a text or a list.", "invalid_prompt")
    else:
        messages = body.get("messages")
        if not are_objects(messages) or not messages:
            raise invalid("'messages' must be a list of objects.", "invalid_messages")
    if not isinstance(body.get("stream"), bool | None):
        raise invalid(f"stream = {quoted(body['stream'])} is neither true nor false.")


def are_objects(value: Any) -> bool:
    """Return whether a JSON value is a list of objects."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def asked_temperature(body: Mapping[str, Any], default: float) -> float:
    """Return a request's temperature, or ``default``; ApiError (400) if invalid."""
    asked = body.get("temperature")
    if asked is None:
        return default
    if type(asked) not in (int, float) or not 0 <= asked < inf:
        raise invalid(f"temperature = {quoted(asked)} is not a number of at least 0.")
    return float(asked)


def asked_tokens(body: Mapping[str, Any], default: int) -> int:
    """Return a request's ``max_tokens``, or ``default``; ApiError (400) if invalid."""
    named = ((name, body.get(name)) for name in _TOKENS)
    name, asked = next((n for n in named if n[1] is not None), ("", default))
    if type(asked) is not int or asked < 1:
        raise invalid(f"{name} = {quoted(asked)} is not a positive whole number.")
    return asked


def model_card(name: str) -> dict[str, Any]:
    """Return a model's entry for OpenAI's list of models."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "agentgym"}


def models_reply(names: Sequence[str]) -> web.Response:
    """Return a response with OpenAI's list of models."""
    return reply({"object": "list", "data": [model_card(name) for name in names]})


def engine_error(error: Exception) -> ApiError:
    """Convert an inference engine's exception to the error that the agent gets."""
    if isinstance(error, ContextLengthError):
        return ApiError(400, str(error), CONTEXT_LENGTH)
    if isinstance(error, GrammarError):
        return ApiError(400, str(error), "unsupported_schema")
    if isinstance(error, PromptError):
        return ApiError(400, str(error), "invalid_messages")
    known = isinstance(error, EngineError)
    message = str(error) if known else f"{type(error).__name__}: {error}"
    return ApiError(500, message, "engine_error", "server_error")
