"""Chat completions as OpenAI shapes them, from and to the policy's own types."""

import time
from collections.abc import Mapping
from typing import Any

from agentgym.core.openai import ApiError, joined_text
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import RequestedCall
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.store.calls import log_prob_content

_PLAIN_FORMATS = (None, {"type": "text"})


def chat_request(call: ProxyCall, settings: GatewaySettings) -> ChatRequest:
    """Return what the policy is asked.

    Sampling is the gateway's: temperature from the mode, the seed from the run and
    the call's place; an agent can only ask for fewer tokens.

    Raises:
        ApiError: 400; the request is malformed or asks for what the policy cannot.
    """
    body = call.body
    messages = body.get("messages")
    if not _are_objects(messages) or not messages:
        raise ApiError(400, "'messages' must be a list of objects.", "invalid_messages")
    tools = body.get("tools") or []
    if not _are_objects(tools):
        raise ApiError(400, "'tools' must be a list of objects.", "invalid_tools")
    for message in messages:
        _refuse_other_than_text(message)
    _refuse_unsupported(body)
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if asked is not None and (not isinstance(asked, int) or asked < 1):
        raise ApiError(400, f"max_tokens = {asked!r} is not positive.", "invalid_value")
    return ChatRequest(
        messages=messages,
        tools=[] if body.get("tool_choice") == "none" else tools,
        temperature=settings.temperature(call.mode, body),
        max_tokens=min(asked or settings.max_tokens, settings.max_tokens),
        seed=call.seed(settings.seed),
        session=call.session,
    )


def completion(result: ChatResult, call_id: str, model: str) -> dict[str, Any]:
    """Return a ``chat.completion`` body, without token ids."""
    message: dict[str, Any] = {"role": "assistant", "content": result.content}
    if result.tool_calls:
        message["tool_calls"] = tool_calls(result.tool_calls)
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": result.finish_reason,
        "logprobs": None,
    }
    return {
        "id": call_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage(result),
    }


def with_ids(
    body: dict[str, Any], result: ChatResult, *, logprobs: bool
) -> dict[str, Any]:
    """Return a completion with the exact ids, and log-probabilities if asked."""
    choice = {**body["choices"][0], "token_ids": result.response_ids}
    if logprobs:
        choice["logprobs"] = log_prob_content(result.response_ids, result.logprobs)
    return {**body, "choices": [choice], "prompt_token_ids": result.prompt_ids}


def usage(result: ChatResult) -> dict[str, int]:
    """Return the token counts of an answer."""
    prompt, response = len(result.prompt_ids), len(result.response_ids)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": response,
        "total_tokens": prompt + response,
    }


def tool_calls(calls: list[RequestedCall]) -> list[dict[str, Any]]:
    """Return tool calls as a message holds them."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def wants_logprobs(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for log-probabilities."""
    return bool(body.get("logprobs"))


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Return whether a streamed answer shall end with its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _refuse_other_than_text(message: Mapping[str, Any]) -> None:
    content = message.get("content")
    if not isinstance(content, list):
        return
    try:
        joined_text(content)
    except ValueError as error:
        raise ApiError(
            400,
            f"In a {message.get('role')!r} message {error}; this policy reads only "
            "text.",
            "unsupported_content",
        ) from error


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Refuse what would change the answer's shape and the policy does not do."""
    refused = {
        "n": body.get("n") not in (None, 1),
        "stop": bool(body.get("stop")),
        "tool_choice": body.get("tool_choice") not in (None, "auto", "none"),
        "response_format": body.get("response_format") not in _PLAIN_FORMATS,
    }
    for name, is_set in refused.items():
        if is_set:
            raise ApiError(
                400,
                f"{name} = {body[name]!r} is not supported by this policy.",
                "unsupported_parameter",
            )
