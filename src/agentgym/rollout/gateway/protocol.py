"""The gateway's settings, the calls it forwards, and errors as OpenAI shapes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import orjson
from aiohttp import web

from agentgym.core.openai import CONTEXT_LENGTH, ApiError
from agentgym.errors import ContextLengthError, EngineError

Mode = Literal["train", "val"]


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of a :class:`~agentgym.rollout.gateway.gateway.Gateway`.

    Attributes:
        host: Address to listen on.
        port: 0 takes a free one.
        api_key: Bearer key; None makes a random one, ``""`` asks for none.
        model_name: Under which model servers are registered; a policy has its own.
        seed: Of the run; every call's random stream follows from it.
        train_temperature: Of calls in mode ``train``; None leaves it to the agent.
        val_temperature: Of calls in mode ``val``; None leaves it to the agent.
        max_tokens: Most tokens of one answer of the policy; an agent may ask for
            fewer.
        include_log_probs: Ask remote servers for log-probabilities in training.
        include_routed_experts: Ask them for routed experts too (MoE models).
        max_in_flight: Model calls answered at the same time; more wait their turn.
        max_waiting: Calls that may wait; beyond it they are refused with 429.
        max_wait_s: How long a call may wait before it is refused with 429.
        max_body_bytes: Of one request.
        upstream_attempts: Tries of a call at a remote server.
        upstream_timeout_s: Of one such try.
        upstream_backoff_s: First wait between tries; doubles up to 8 s.
    """

    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    model_name: str = "policy"
    seed: int = 0
    train_temperature: float | None = 1.0
    val_temperature: float | None = 0.7
    max_tokens: int = 256
    include_log_probs: bool = True
    include_routed_experts: bool = False
    max_in_flight: int = 512
    max_waiting: int = 4096
    max_wait_s: float = 60.0
    max_body_bytes: int = 64 * 2**20
    upstream_attempts: int = 6
    upstream_timeout_s: float = 300.0
    upstream_backoff_s: float = 0.5

    def sampling(self, call: "ProxyCall") -> dict[str, Any]:
        """Return the temperature, ``max_tokens`` and seed of a call.

        The temperature is the mode's own, else the agent's; an agent can only ask for
        fewer tokens. The seed, in 0 .. 2**63 - 1, depends on nothing but the run's, the
        rollout, the attempt, the agent and the call's place, so it is the same however
        calls interleave.

        Raises:
            ApiError: 400; the agent's temperature is no number, or its limit of
                tokens no positive one.
        """
        body = call.body
        own = self.train_temperature if call.mode == "train" else self.val_temperature
        if own is None:
            asked = body.get("temperature")
            own = 1.0 if asked is None else asked
            if type(own) not in (int, float):
                told = f"temperature = {asked!r:.80} is no number."
                raise ApiError(400, told, "invalid_value")
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        asked = self.max_tokens if asked is None else asked
        if not isinstance(asked, int) or asked < 1:
            told = f"max_tokens = {asked!r} is not positive."
            raise ApiError(400, told, "invalid_value")
        key = f"{self.seed}/{call.session}/{call.index}".encode()
        seed = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1
        most = min(asked, self.max_tokens)
        return {"temperature": own, "max_tokens": most, "seed": seed}


@dataclass(frozen=True, slots=True)
class ProxyCall:
    """One model call of an agent, as it came in.

    Attributes:
        rollout_id: The rollout, ``attempt_id`` its try.
        path: ``chat/completions`` or ``completions``.
        agent: Who of a team speaks.
        index: Calls that this agent made before in this attempt.
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
        """Whether the answer shall come in pieces."""
        return bool(self.body.get("stream"))

    @property
    def session(self) -> str:
        """Shared by the calls of one agent in one attempt."""
        return f"{self.rollout_id}/{self.attempt_id}/{self.agent}"


def reply(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response with JSON; pydantic's models are JSON too."""
    body = orjson.dumps(value, default=lambda m: orjson.Fragment(m.model_dump_json()))
    kind = "application/json"
    return web.Response(body=body, status=status, headers=headers, content_type=kind)


def engine_error(error: Exception) -> ApiError:
    """Return what an agent is told of an engine's failure."""
    if isinstance(error, ContextLengthError):
        return ApiError(400, str(error), CONTEXT_LENGTH)
    known = isinstance(error, EngineError)
    told = str(error) if known else f"{type(error).__name__}: {error}"
    return ApiError(500, told, "engine_error", "server_error")
