"""Answer model calls: the base class, and the policy in this process."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import orjson

from agentgym.core.openai import ApiError, Completion, joined_text, unsupported_option
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.errors import ContextLengthError, EngineError, PromptError
from agentgym.models.dialects.base import frame
from agentgym.models.dialects.chat import ChunkWriter
from agentgym.models.forms import (
    NO_FORM,
    Form,
    form_as_tool,
    form_given,
    request_in_form,
    stream_until_stop,
    until_stop,
)
from agentgym.rollout.gateway.protocol import (
    GatewaySettings,
    ProxyCall,
    are_objects,
    engine_error,
    invalid,
)
from agentgym.rollout.store.records import RecordedCall
from agentgym.security.redaction import get_logger, quoted

logger = get_logger(__name__)


class EndedAnswer(NamedTuple):
    """The last item of :meth:`Chat.answer`: the completion, or the error."""

    payload: bytes  # the whole answer, or the end of a stream
    body: dict[str, Any]  # the whole completion with its exact token ids, or the error
    status: int = 200
    version: int | None = None  # the policy's weight updates; None if it did not answer


@dataclass(frozen=True, slots=True)
class Chat:
    """Answers one chat completion request with a policy."""

    policy: Policy
    request: ChatRequest  # from chat_request()
    body: Mapping[str, Any]  # as the agent sent it
    call_id: str
    model: str  # its name in the answer
    shows_ids: bool = True  # whether the answer has the token ids
    form: str = ""  # name of the tool that stands for the request's JSON schema, if any
    one_call: bool = False  # whether only the answer's first tool call is sent

    async def answer(self) -> AsyncGenerator[bytes | EndedAnswer]:
        """Yield the bytes of a streamed answer as they come, then an EndedAnswer.

        Without streaming, only that is yielded. If the policy fails, it has the error.
        An error before the first bytes is sent as JSON, also if the agent asked for a
        stream.
        """
        writer = ChunkWriter(self.call_id, self.model, self.body)
        has_begun = has_ended = False
        try:
            if not self.body.get("stream"):
                result = await self.policy.chat(self.request)
                yield self._ended(until_stop(self.request.stop, result), orjson.dumps)
                return
            pieces = self.policy.stream(self.request)
            async for item in stream_until_stop(self.request.stop, pieces):
                if not has_begun:
                    has_begun = True
                    yield writer.start()
                if isinstance(item, str):
                    yield writer.text(item)
                    continue
                yield self._ended(item, writer.end)  # the last: the stream then ends
                has_ended = True
            if not has_ended:
                raise EngineError("The policy's stream ended without a result.")
        except Exception as error:
            if not isinstance(error, (ContextLengthError, PromptError)):
                logger.warning("a model call failed", exc_info=True)
            wording = engine_error(error)
            sent = frame(wording.body) if has_begun else orjson.dumps(wording.body)
            yield EndedAnswer(sent, wording.body, wording.status)

    def _ended(
        self, result: ChatResult, written: Callable[[dict[str, Any]], bytes]
    ) -> EndedAnswer:
        whole = completion_body(result, self.call_id, self.model)
        if problem := Completion(whole).problem:
            raise EngineError(f"The policy's answer cannot be used: {problem}.")
        wording = _log_probs(result) if self.body.get("logprobs") else None
        choice = whole["choices"][0] | {"logprobs": wording}
        if self.form and choice["message"].get("tool_calls"):
            choice["message"] = form_given(choice["message"], self.form)
            if "tool_calls" not in choice["message"]:
                choice["finish_reason"] = "stop"
        if self.one_call and (calls := choice["message"].get("tool_calls")):
            choice["message"] = choice["message"] | {"tool_calls": calls[:1]}
        shown = whole | {"choices": [choice]}
        if not self.shows_ids:
            del choice["token_ids"], shown["prompt_token_ids"]
            shown.pop("grammar", None)
        return EndedAnswer(written(shown), whole, version=result.model_version)


def chat_request(
    body: Mapping[str, Any],
    form: Form = NO_FORM,
    *,
    in_training: bool = False,
    **sampling: Any,
) -> ChatRequest:
    """Convert the body of a chat completion request to a request for the policy.

    ``form`` is the tool that replaces the request's JSON schema. Call
    :func:`asked_form` first, and pass the ``body`` and ``form`` that it returns. With
    ``in_training``, the agent's sampling options, e.g. ``top_p``, are ignored.
    ``sampling`` are other fields of the ChatRequest, e.g. the temperature.
    """
    messages, tools = body.get("messages"), body.get("tools") or []
    if not are_objects(messages) or not messages:
        raise invalid("'messages' must be a list of objects.", "invalid_messages")
    if not are_objects(tools):
        raise invalid("'tools' must be a list of objects.", "invalid_tools")
    for place, tool in enumerate(tools):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            wording = f"tools[{place}] is not a function with a name."
            raise invalid(wording, "invalid_tools")
    if name := unsupported_option(body, in_training=in_training):
        wording = f"{name} = {quoted(body[name])} is not supported by this policy."
        raise invalid(wording, "unsupported_parameter")
    messages = [_message(place, each) for place, each in enumerate(messages)]
    try:
        return request_in_form(messages, {**body, "tools": tools}, form, **sampling)
    except ValueError as error:
        raise invalid(str(error)) from error


def asked_form(body: Mapping[str, Any]) -> tuple[dict[str, Any], Form]:
    """Replace the JSON schema in a request's ``response_format`` by a tool."""
    try:
        return form_as_tool(body)
    except ValueError as error:
        raise invalid(str(error)) from error


def _message(place: int, message: dict[str, Any]) -> dict[str, Any]:
    """Check a message, and rename its role ``developer`` to ``system``."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(content, str | list | None):
        wording = f"messages[{place}].content = {quoted(content)} is not text."
        raise invalid(wording, "invalid_messages")
    try:
        joined_text(content if isinstance(content, list) else [])
    except ValueError as error:
        wording = f"In a {quoted(role)} message {error}; this policy reads only text."
        raise invalid(wording, "unsupported_content") from error
    if not isinstance(role, str) or not role:
        wording = f"messages[{place}].role = {quoted(role)} is not a role, e.g. 'user'."
        raise invalid(wording, "invalid_messages")
    if not are_objects(message.get("tool_calls") or []):
        wording = f"messages[{place}].tool_calls must be a list of objects."
        raise invalid(wording, "invalid_messages")
    return {**message, "role": "system"} if role == "developer" else message


def _log_probs(result: ChatResult) -> dict[str, Any]:
    """Return log-probabilities in OpenAI's form, with token ids instead of texts."""
    tokens: list[dict[str, Any]] = [
        {"token": f"token_id:{i}", "logprob": x, "bytes": None, "top_logprobs": []}
        for i, x in zip(result.response_ids, result.logprobs, strict=True)
    ]
    return {"content": tokens}


def completion_body(result: ChatResult, call_id: str, model: str) -> dict[str, Any]:
    """Return the body of a ``chat.completion`` response, with exact token ids.

    Log-probabilities have the form of OpenAI's text completions, because it takes a
    tenth of the space of the chat form.
    """
    message: dict[str, Any] = {"role": "assistant", "content": result.content}
    if result.tool_calls:
        message["tool_calls"] = [call.to_openai() for call in result.tool_calls]
    choice = {
        "message": message,
        "finish_reason": result.finish_reason,
        "logprobs": {"token_logprobs": result.logprobs},
        "token_ids": result.response_ids,
    }
    counts = len(result.prompt_ids), len(result.response_ids)
    whole = completion(call_id, model, choice, *counts)
    whole["prompt_token_ids"] = result.prompt_ids
    if result.grammar is not None:
        whole["grammar"] = result.grammar.model_dump()
    return whole


def completion(
    call_id: str, model: str, choice: dict[str, Any], prompt: int, response: int
) -> dict[str, Any]:
    """Return the body of a ``chat.completion`` response."""
    return {
        "id": call_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, **choice}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": response,
            "total_tokens": prompt + response,
        },
    }


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
    ) -> CallOutcome:
        """Convert the model's answer, or its error, to a CallOutcome.

        ``response`` is the parsed body, and ``payload`` has the bytes to send to the
        agent. With ``is_whole``, these bytes are the whole body, and are recorded; else
        ``response`` is recorded. Routed experts (the experts that a MoE model used for
        each token) are recorded, but not sent to the agent.
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
