"""The gateway's settings, the calls it forwards, and errors as OpenAI shapes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from agentgym.core.openai import ApiError
from agentgym.errors import ContextLengthError, EngineError

Mode = Literal["train", "val"]


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of a :class:`~agentgym.rollout.gateway.gateway.Gateway`.

    Attributes:
        host: Address to listen on.
        port: 0 takes a free one.
        api_key: Bearer key; None makes a random one, ``""`` asks for none.
        model_name: Under which remote model servers are registered; an in-process
            policy has its own name.
        seed: Of the run; every call's random stream follows from it.
        train_temperature: Of calls in mode ``train``; None leaves it to the agent.
        val_temperature: Of calls in mode ``val``; None leaves it to the agent.
        max_tokens: Most tokens of one answer of an in-process policy; an agent may
            ask for fewer.
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

    def temperature(self, mode: Mode, body: Mapping[str, Any]) -> float:
        """Return the temperature of a call: the mode's own, else the agent's."""
        own = self.train_temperature if mode == "train" else self.val_temperature
        if own is not None:
            return own
        asked = body.get("temperature")
        return 1.0 if asked is None else float(asked)


@dataclass(frozen=True, slots=True)
class ProxyCall:
    """One model call of an agent, as it came in.

    Attributes:
        rollout_id: The rollout, ``attempt_id`` its try.
        mode: ``train`` or ``val``.
        path: ``chat/completions`` or ``completions``.
        agent: Who of a team speaks.
        index: Calls that this agent made before in this attempt.
        body: The request.
    """

    rollout_id: str
    attempt_id: str
    mode: Mode
    path: str
    agent: str
    index: int
    body: dict[str, Any]

    @property
    def session(self) -> str:
        """Shared by the calls of one agent in one attempt."""
        return f"{self.rollout_id}/{self.attempt_id}/{self.agent}"

    def seed(self, run_seed: int) -> int:
        """Return the seed of this call's own random stream, in 0 .. 2**63 - 1.

        It depends on nothing but the run's seed, the rollout, the attempt, the
        agent and the call's place, so it is the same however calls interleave.
        """
        key = f"{run_seed}/{self.session}/{self.index}".encode()
        return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1


def engine_error(error: EngineError) -> ApiError:
    """Return what an agent is told of an engine's failure."""
    if isinstance(error, ContextLengthError):
        return ApiError(400, str(error), "context_length_exceeded")
    return ApiError(500, str(error), "engine_error", "server_error")
