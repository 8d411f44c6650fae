"""Upstreams: where the gateway gets its answers. Here: the policy in this process."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from agentgym.core.openai import ApiError, Completion, chosen_tools, joined_text
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.errors import ContextLengthError, EngineError
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall, engine_error
from agentgym.rollout.gateway.sse import ChunkWriter, frame
from agentgym.rollout.store.events import RecordedCall

logger = logging.getLogger(__name__)

_PLAIN_FORMATS = (None, {"type": "text"})


class Answer(NamedTuple):
    """How a model call ended: the (last) bytes, and what to record before them."""

    payload: bytes
    record: RecordedCall


@dataclass(slots=True)
class Exchange:
    """A model call under way: what an agent asked, and what whom is asked for it."""

    call: ProxyCall
    model: str
    endpoint: str
    version: int | None  # updates that the model had had
    request: dict[str, Any]
    retries: int = 0
    _started: float = field(default_factory=time.perf_counter)

    def answer(
        self, response: dict[str, Any], payload: bytes, status: int = 200
    ) -> Answer:
        """Return the answer; routed experts are recorded, and not passed on."""
        choices = response.get("choices")
        routes = [
            choice.pop("routed_experts")
            for choice in (choices if isinstance(choices, list) else ())
            if isinstance(choice, dict) and choice.get("routed_experts")
        ]
        if routes and payload.startswith(b"{"):
            payload = orjson.dumps(response)
        server = {"model": self.model, "version": self.version}
        record = RecordedCall(
            {
                "model": self.model,
                "model_version": self.version,
                "request": self.request,
                "response": response,
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
        )
        return Answer(payload, record)

    def refusal(self, error: ApiError, *, has_begun: bool = False) -> Answer:
        """Return an error as the answer, in the stream if that has begun."""
        body = frame(error.body) if has_begun else orjson.dumps(error.body)
        return self.answer(error.body, body, error.status)


class Upstream(ABC):
    """Answers model calls.

    Attributes:
        failure: Why it will never answer again; None while there is hope.
    """

    failure: str | None = None

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name that agents see."""

    @abstractmethod
    def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | Answer]:
        """Yield the bytes of a streamed answer as they come, and an Answer at last.

        A failure of the model is an answer too. One before any bytes is JSON, sent
        instead of a stream.

        Raises:
            ApiError: The call was never made: malformed, or nobody to ask.
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

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | Answer]:
        """Yield what the policy samples."""
        if call.path != "chat/completions":
            told = "This policy answers chat completions only; ask chat/completions."
            raise ApiError(404, told, "unsupported_path")
        sampling = self._settings.sampling(call)
        request = chat_request(call, sampling)
        asked = call.body | sampling
        exchange = Exchange(call, self.model_name, "in-process", None, asked)
        call_id = f"chatcmpl-{request.seed:016x}"
        writer = ChunkWriter(call_id, self.model_name, call.body)
        has_begun = False

        def ended(result: ChatResult) -> Answer:
            exchange.version = result.model_version
            body = completion_body(result, call_id, self.model_name)
            if problem := Completion(body).problem:
                raise EngineError(f"The policy's answer cannot be used: {problem}.")
            told = _log_probs(result) if call.body.get("logprobs") else None
            shown = body | {"choices": [body["choices"][0] | {"logprobs": told}]}
            end = writer.end(shown) if call.streams else orjson.dumps(shown)
            return exchange.answer(body, end)

        try:
            if not call.streams:
                yield ended(await self._policy.chat(request))
                return
            async for item in self._policy.stream(request):
                if not has_begun:
                    has_begun = True
                    yield writer.start()
                if not isinstance(item, str):
                    yield ended(item)
                    return
                yield writer.text(item)
            raise EngineError("The policy's stream ended without a result.")
        except Exception as error:
            if not isinstance(error, ContextLengthError):  # the episode's own doing
                logger.warning("a model call failed", exc_info=True)
            yield exchange.refusal(engine_error(error), has_begun=has_begun)


def chat_request(call: ProxyCall, sampling: dict[str, Any]) -> ChatRequest:
    """Return what the policy is asked; refuse what is malformed or it cannot do."""
    body = call.body
    messages, tools = body.get("messages"), body.get("tools") or []
    if not _are_objects(messages) or not messages:
        raise _refused("'messages' must be a list of objects.", "invalid_messages")
    if not _are_objects(tools):
        raise _refused("'tools' must be a list of objects.", "invalid_tools")
    for message in messages:
        parts = message.get("content")
        try:
            joined_text(parts if isinstance(parts, list) else [])
        except ValueError as error:
            told = f"In a {message.get('role')!r} message {error}"
            told += "; this policy reads only text."
            raise _refused(told, "unsupported_content") from error
    changes_answer = {
        "n": body.get("n") not in (None, 1),
        "stop": bool(body.get("stop")),
        "response_format": body.get("response_format") not in _PLAIN_FORMATS,
    }
    for name in (name for name, is_set in changes_answer.items() if is_set):
        told = f"{name} = {body[name]!r} is not supported by this policy."
        raise _refused(told, "unsupported_parameter")
    try:
        offered = chosen_tools(tools, body.get("tool_choice"))
    except ValueError as error:
        raise _refused(str(error), "invalid_value") from error
    return ChatRequest(messages, offered, session=call.session, **sampling)


def _refused(told: str, code: str) -> ApiError:
    return ApiError(400, told, code)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _log_probs(result: ChatResult) -> dict[str, Any]:
    """Return log-probabilities in chat's form, with tokens named by id as in vLLM."""
    tokens: list[dict[str, Any]] = [
        {"token": f"token_id:{i}", "logprob": x, "bytes": None, "top_logprobs": []}
        for i, x in zip(result.response_ids, result.logprobs, strict=True)
    ]
    return {"content": tokens}


def completion_body(result: ChatResult, call_id: str, model: str) -> dict[str, Any]:
    """Return a ``chat.completion`` body with exact token ids.

    Log-probabilities are in the form of text completions, a tenth of chat's in size.
    """
    message: dict[str, Any] = {"role": "assistant", "content": result.content}
    if result.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in result.tool_calls
        ]
    prompt, response = len(result.prompt_ids), len(result.response_ids)
    return {
        "id": call_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": result.finish_reason,
                "logprobs": {"token_logprobs": result.logprobs},
                "token_ids": result.response_ids,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": response,
            "total_tokens": prompt + response,
        },
        "prompt_token_ids": result.prompt_ids,
    }
