"""Reply: parse the answer of a model function, in any supported format."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from agentgym.core.openai import Completion
from agentgym.core.trajectory import RequestedCall
from agentgym.errors import ReplyError, first_problem
from agentgym.security.redaction import quoted

Llm = Callable[..., Awaitable[Any]]
"""Type of a model function, ``async def llm(messages, **options)``.

It returns a text, an OpenAI-style message, or a whole chat completion, whose tokens are
recorded. ``options`` may be ``tools``, ``max_tokens``, ``temperature`` and ``stop``.
"""


@dataclass(frozen=True)
class ModelReply:
    """A parsed answer: the ``message`` to append, and its ``recorded`` parts."""

    content: str
    tool_calls: list[RequestedCall]
    message: dict[str, Any]
    finish_reason: str
    recorded: dict[str, Any] = field(default_factory=dict)


class _Function(BaseModel):
    name: str = Field(min_length=1)
    arguments: str | dict[str, Any] | None = None


class _Call(BaseModel):
    id: str | None = None
    function: _Function


class _Part(BaseModel):
    text: str = ""


class _Message(BaseModel):
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None


def read_reply(value: Any, *, step: int = 0) -> ModelReply:
    """Parse the result of a model function: a text, a message or a chat completion."""
    if isinstance(value, str):
        return ModelReply(value, [], {"role": "assistant", "content": value}, "stop")
    if isinstance(value, dict) and "choices" in value:
        completion = Completion(value)
        message = completion.choice.get("message")
        if not isinstance(message, dict):
            raise ReplyError(f"the completion has no message: {quoted(value)}")
        ids = completion.response_ids
        recorded = {
            "prompt_ids": completion.prompt_ids,
            "response_ids": ids,
            "logprobs": (completion.logprobs or []) if ids else [],
            **completion.token_counts,
        }
        finish_reason = completion.choice.get("finish_reason")
        return _read_message(message, step, recorded, finish_reason)
    if isinstance(value, dict) and ("content" in value or "tool_calls" in value):
        return _read_message(value, step, {}, None)
    raise ReplyError(
        f"the model returned {quoted(value)}, which is neither text nor a message "
        "with content or tool_calls"
    )


def _read_message(
    message: dict[str, Any], step: int, recorded: dict[str, Any], finish_reason: Any
) -> ModelReply:
    try:
        read = _Message.model_validate(message)
    except ValidationError as error:
        raise ReplyError(
            f"the model's message is malformed at {first_problem(error)}: "
            f"{quoted(message)}"
        ) from None
    content = read.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    calls = [
        RequestedCall(
            id=call.id or f"call_{step}_{place}",
            name=call.function.name,
            arguments=_as_text(call.function.arguments),
        )
        for place, call in enumerate(read.tool_calls or [])
    ]
    said: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        said["tool_calls"] = [call.to_openai() for call in calls]
    if not isinstance(finish_reason, str):
        finish_reason = "tool_calls" if calls else "stop"
    return ModelReply(content or "", calls, said, finish_reason, recorded)


def _as_text(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return json.dumps(arguments, default=str)
    return arguments or ""
