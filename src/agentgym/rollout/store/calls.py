"""RecordedCall: one model call as the gateway recorded it, and its other shapes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.trajectory import ModelCall, RequestedCall

MODEL_REQUEST = "model_request"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One model call. Token ids are kept apart from the rest of the response.

    Attributes:
        agent: Who of a team spoke.
        model: Name of the model, ``endpoint`` where it answered.
        model_version: Updates the model had had; None if the server did not say.
        request: The request's body as it was sent to the model.
        response: The response's body without token ids.
        prompt_ids: Exact ids that the model saw.
        response_ids: Exact ids that it sampled.
        logprobs: One per response id; None if they are in ``response``, or unknown.
        ids_in_choice: Whether the prompt's ids came inside the choice, as in text
            completions.
        latency_ms: Until the answer was complete.
        http_status: 400 and above are errors.
        retry_count: Tries before this one.
        routed_experts: As the server sent them (MoE models).
    """

    agent: str
    model: str
    endpoint: str
    model_version: int | None
    request: dict[str, Any]
    response: dict[str, Any]
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None = None
    ids_in_choice: bool = False
    latency_ms: float = 0.0
    http_status: int = 200
    retry_count: int = 0
    routed_experts: Any = None

    @property
    def ok(self) -> bool:
        """Whether the model answered."""
        return self.http_status < 400

    @property
    def choice(self) -> dict[str, Any]:
        """The response's first choice, empty if it has none."""
        choices = self.response.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else {}
        return first if isinstance(first, dict) else {}

    def to_data(self) -> dict[str, Any]:
        """Return the payload of Agent Lightning's ``model_request`` event."""
        response = self.full_response()
        return {
            "model": self.model,
            "model_version": self.model_version,
            "request": self.request,
            "response": response,
            "server": self._server() | {"endpoint": self.endpoint},
            "latency_ms": self.latency_ms,
            "http_status": self.http_status,
            "status": "ok" if self.ok else "error",
            "retry_count": self.retry_count,
            "routed_experts": self.routed_experts,
            "usage": response.get("usage"),
            "finish_reason": self.choice.get("finish_reason"),
            "agent": self.agent,
        }

    def to_triplet(self) -> dict[str, Any]:
        """Return the event's payload in Agent Lightning's ``triplet`` format."""
        triplet = {
            "prompt_token_ids": self.prompt_ids,
            "response_token_ids": self.response_ids,
            "response_log_probs": self.log_probs(),
            "server": self._server(),
            "http_status": self.http_status,
            "status": "ok" if self.ok else "error",
        }
        if self.routed_experts is not None:
            triplet["routed_experts"] = self.routed_experts
        if "error" in self.response:
            triplet["error"] = self.response["error"]
        return triplet

    def to_step(self) -> dict[str, Any]:
        """Return the fields of the :class:`ModelCall` that this was."""
        message = self.choice.get("message") or {}
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
            "messages": self.request.get("messages") or [],
            "tools": self.request.get("tools") or [],
            "content": _text(message.get("content", self.choice.get("text"))),
            "tool_calls": calls,
            "prompt_ids": self.prompt_ids,
            "response_ids": self.response_ids,
            "logprobs": self.log_probs() or [],
            "model_version": self.model_version or 0,
            "finish_reason": self.choice.get("finish_reason") or "stop",
            "latency_ms": self.latency_ms,
            **self.token_counts(),
        }

    def to_model_call(self) -> ModelCall:
        """Return this call as a step of a trajectory.

        The values were checked when they were recorded, so they are not again.
        """
        step = self.to_step()
        step["tool_calls"] = [RequestedCall(**call) for call in step["tool_calls"]]
        return ModelCall.model_construct(**step)

    def log_probs(self) -> list[float] | None:
        """Return the response's log-probabilities; None if one is not usable."""
        if self.logprobs is not None:
            return self.logprobs
        return _log_probs(self.choice.get("logprobs"))

    def full_response(self) -> dict[str, Any]:
        """Return the response's body with token ids and log-probabilities."""
        if not self.choice:
            return self.response
        choice = {**self.choice, "token_ids": self.response_ids}
        if self.logprobs is not None:
            choice["logprobs"] = log_prob_content(self.response_ids, self.logprobs)
        response = {**self.response, "choices": [choice, *self.response["choices"][1:]]}
        (choice if self.ids_in_choice else response)["prompt_token_ids"] = (
            self.prompt_ids
        )
        return response

    def token_counts(self) -> dict[str, int]:
        """Return the server's own token counts, where it gave no ids."""
        usage = self.response.get("usage")
        if self.prompt_ids or self.response_ids or not isinstance(usage, dict):
            return {}
        found = {
            "prompt_tokens": usage.get("prompt_tokens"),
            "response_tokens": usage.get("completion_tokens"),
        }
        return {name: n for name, n in found.items() if type(n) is int and n >= 0}

    def _server(self) -> dict[str, Any]:
        return {"model": self.model, "version": self.model_version}


def record_of_response(
    response: dict[str, Any],
    *,
    request: dict[str, Any],
    agent: str = DEFAULT_AGENT,
    model: str = "",
    endpoint: str = "",
    model_version: int | None = None,
    latency_ms: float = 0.0,
    http_status: int = 200,
    retry_count: int = 0,
    routed_experts: Any = None,
) -> RecordedCall:
    """Take a server's response body apart; ``response`` itself is left as it is."""
    skeleton = dict(response)
    prompt_ids = skeleton.pop("prompt_token_ids", None)
    response_ids: Any = None
    in_choice = False
    choices = skeleton.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = dict(choices[0])
        skeleton["choices"] = [choice, *choices[1:]]
        response_ids = choice.pop("token_ids", None)
        inner = choice.pop("prompt_token_ids", None)
        in_choice = not prompt_ids and bool(inner)
        prompt_ids = prompt_ids or inner
    return RecordedCall(
        agent=agent,
        model=model,
        endpoint=endpoint,
        model_version=model_version,
        request=request,
        response=skeleton,
        prompt_ids=prompt_ids or [],
        response_ids=response_ids or [],
        ids_in_choice=in_choice,
        latency_ms=latency_ms,
        http_status=http_status,
        retry_count=retry_count,
        routed_experts=routed_experts,
    )


def record_of_data(data: Mapping[str, Any]) -> RecordedCall:
    """Read the payload of a ``model_request`` event that a client posted."""
    server = data.get("server") or {}
    response = data.get("response")
    return record_of_response(
        response if isinstance(response, dict) else {},
        request=data.get("request") or {},
        agent=data.get("agent") or DEFAULT_AGENT,
        model=server.get("model") or data.get("model") or "",
        endpoint=server.get("endpoint") or "",
        model_version=server.get("version", data.get("model_version")),
        latency_ms=data.get("latency_ms") or 0.0,
        http_status=data.get("http_status") or (500 if _failed(data) else 200),
        retry_count=data.get("retry_count") or 0,
        routed_experts=data.get("routed_experts"),
    )


def log_prob_content(ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    """Return log-probabilities as a chat completion's choice holds them.

    Tokens are named by id (``token_id:42``), as vLLM does when asked for ids.
    """
    return {
        "content": [
            {
                "token": f"token_id:{token_id}",
                "logprob": logprob,
                "bytes": None,
                "top_logprobs": [],
            }
            for token_id, logprob in zip(ids, logprobs, strict=True)
        ]
    }


def _text(content: Any) -> str | None:
    """Return a message's text, also of content in parts."""
    if not isinstance(content, list):
        return None if content is None else str(content)
    return "".join(
        str(part.get("text") or "") for part in content if isinstance(part, dict)
    )


def _failed(data: Mapping[str, Any]) -> bool:
    return data.get("status") == "error"


def _log_probs(found: Any) -> list[float] | None:
    """Read chat (``content``) or text (``token_logprobs``) log-probabilities."""
    if not isinstance(found, dict):
        return None
    raw = found.get("token_logprobs")
    if isinstance(found.get("content"), list):
        raw = [x.get("logprob") if isinstance(x, dict) else x for x in found["content"]]
    if not isinstance(raw, list):
        return None
    values = [float(x) for x in raw if type(x) in (int, float) and math.isfinite(x)]
    return values if len(values) == len(raw) else None
