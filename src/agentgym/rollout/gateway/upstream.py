"""Upstreams: where the gateway gets its answers. Here: the policy in this process."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from agentgym.core.openai import ApiError
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.errors import ContextLengthError, EngineError
from agentgym.rollout.gateway import completions
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall, engine_error
from agentgym.rollout.gateway.sse import ChunkWriter, frame
from agentgym.rollout.store.calls import RecordedCall

logger = logging.getLogger(__name__)

IN_PROCESS = "in-process"
"""Endpoint that is recorded for calls of a policy in this process."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a model call ended.

    Attributes:
        status: HTTP status.
        payload: The body; of a streamed answer its last bytes.
        record: What to record before the payload is sent.
        is_stream: Whether the payload is server-sent events, not JSON.
    """

    status: int
    payload: bytes
    record: RecordedCall
    is_stream: bool = False


class Upstream(ABC):
    """Answers model calls."""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name that agents see."""

    @property
    def failure(self) -> str | None:
        """Why it will never answer again; None while there is hope."""
        return None

    @abstractmethod
    async def answer(self, call: ProxyCall) -> Answer:
        """Answer a call in one piece; a failure of the model is an answer too.

        Raises:
            ApiError: The call was never made: malformed, or nobody to ask.
        """

    @abstractmethod
    def stream(self, call: ProxyCall) -> AsyncIterator[bytes | Answer]:
        """Yield an answer's server-sent events as they come, at last an Answer.

        An Answer that comes first, before any bytes, is sent instead of a stream.

        Raises:
            ApiError: As :meth:`answer`.
        """

    async def start(self) -> None:
        """Make ready; called on the gateway's event loop."""

    async def close(self) -> None:
        """Release what :meth:`start` took."""


class PolicyUpstream(Upstream):
    """Answers from a policy in this process."""

    def __init__(self, policy: Policy, settings: GatewaySettings) -> None:
        self._policy = policy
        self._settings = settings

    @property
    def model_name(self) -> str:
        """The policy's name."""
        return self._policy.model_name

    async def answer(self, call: ProxyCall) -> Answer:
        """Answer a call in one piece."""
        request = self._request(call)
        started = time.perf_counter()
        try:
            result = await self._policy.chat(request)
        except ContextLengthError as error:  # the episode's own doing
            return self._failure(call, request, error, started)
        except Exception as error:
            logger.warning("a model call failed", exc_info=True)
            return self._failure(call, request, error, started)
        record = self._record(call, request, result, started)
        body = completions.with_ids(
            record.response, result, logprobs=completions.wants_logprobs(call.body)
        )
        return Answer(200, orjson.dumps(body), record)

    async def stream(self, call: ProxyCall) -> AsyncIterator[bytes | Answer]:
        """Yield an answer's text as the policy samples it."""
        request = self._request(call)
        started = time.perf_counter()
        writer = ChunkWriter(
            _call_id(request),
            self.model_name,
            logprobs=completions.wants_logprobs(call.body),
            include_usage=completions.wants_usage(call.body),
        )
        has_begun = False
        try:
            async for item in self._policy.stream(request):
                if not has_begun:
                    has_begun = True
                    yield writer.start()
                if isinstance(item, str):
                    yield writer.text(item)
                    continue
                record = self._record(call, request, item, started)
                yield Answer(200, writer.end(item), record, is_stream=True)
                return
            raise EngineError("The policy's stream ended without a result.")
        except Exception as error:
            if not isinstance(error, ContextLengthError):
                logger.warning("a model call failed", exc_info=True)
            failure = self._failure(call, request, error, started)
            body = frame(failure.record.response) if has_begun else failure.payload
            yield Answer(failure.status, body, failure.record)

    def _request(self, call: ProxyCall) -> ChatRequest:
        if call.path != "chat/completions":
            raise ApiError(
                404,
                "This policy answers chat completions only; ask chat/completions.",
                "unsupported_path",
            )
        return completions.chat_request(call, self._settings)

    def _record(
        self, call: ProxyCall, request: ChatRequest, result: ChatResult, started: float
    ) -> RecordedCall:
        return RecordedCall(
            agent=call.agent,
            model=self.model_name,
            endpoint=IN_PROCESS,
            model_version=result.model_version,
            request=_sent(call, request),
            response=completions.completion(result, _call_id(request), self.model_name),
            prompt_ids=result.prompt_ids,
            response_ids=result.response_ids,
            logprobs=result.logprobs,
            latency_ms=1000 * (time.perf_counter() - started),
        )

    def _failure(
        self, call: ProxyCall, request: ChatRequest, error: Exception, started: float
    ) -> Answer:
        if not isinstance(error, EngineError):
            error = EngineError(f"{type(error).__name__}: {error}")
        told = engine_error(error)
        record = RecordedCall(
            agent=call.agent,
            model=self.model_name,
            endpoint=IN_PROCESS,
            model_version=None,
            request=_sent(call, request),
            response=told.body,
            prompt_ids=[],
            response_ids=[],
            latency_ms=1000 * (time.perf_counter() - started),
            http_status=told.status,
        )
        return Answer(told.status, orjson.dumps(told.body), record)


def _call_id(request: ChatRequest) -> str:
    return f"chatcmpl-{request.seed:016x}"


def _sent(call: ProxyCall, request: ChatRequest) -> dict[str, Any]:
    """Return the call's body with the sampling settings that were used."""
    return {
        **call.body,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
    }
