"""MessagesDialect: convert between Anthropic's Messages and chat completions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agentgym.core.openai import ApiError, Completion
from agentgym.core.tools import parse_arguments
from agentgym.models.dialects.base import IS_ERROR, Dialect, frame, refused, text_of
from agentgym.security.redaction import quoted

_STOPS = {"length": "max_tokens", "tool_calls": "tool_use"}
_SAME = ("model", "max_tokens", "temperature", "top_p")
_REASONING = ("thinking", "redacted_thinking")
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class MessagesDialect(Dialect):
    """Converts between Anthropic's ``POST /v1/messages`` and chat completions."""

    path = "messages"

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Convert a request of the Messages API to a chat-completion request."""
        found = {key: body[key] for key in _SAME if body.get(key) is not None}
        messages = []
        if system := text_of(body.get("system") or "", "system"):
            messages.append({"role": "system", "content": system})
        asked = body.get("messages")
        if not isinstance(asked, list) or not asked:
            raise refused("'messages' must be a list of messages")
        for place, message in enumerate(asked):
            messages += _converted(message, f"messages[{place}]")
        found["messages"] = messages
        if tools := [*_tools(body.get("tools") or ())]:
            found["tools"] = tools
        choice = body.get("tool_choice")
        if isinstance(choice, Mapping):
            found["tool_choice"] = _choice(choice)
            if choice.get("disable_parallel_tool_use"):
                found["parallel_tool_calls"] = False
        if stops := body.get("stop_sequences"):
            found["stop"] = stops
        user = (body.get("metadata") or {}).get("user_id")
        return found if user is None else {**found, "user": user}

    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Convert a chat completion to a message in Anthropic's format."""
        choice = Completion(completion).choice
        message = choice["message"]
        usage = completion.get("usage") or {}
        return {
            "id": f"msg_{completion['id']}",
            "type": "message",
            "role": "assistant",
            "model": completion["model"],
            "content": list(_blocks(message)),
            "stop_reason": _STOPS.get(choice.get("finish_reason") or "", "end_turn"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.get("prompt_tokens", 0),
                "output_tokens": usage.get("completion_tokens", 0),
            },
        }

    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Convert a chat completion to Anthropic's server-sent events."""
        whole = self.answer(completion, body)
        usage = {**whole["usage"], "output_tokens": 0}
        begun = {**whole, "content": [], "stop_reason": None, "usage": usage}
        parts = [_event("message_start", message=begun)]
        choice = Completion(completion).choice
        raw = iter(choice["message"].get("tool_calls") or ())
        for at, block in enumerate(whole["content"]):
            if block["type"] == "text":
                empty = {**block, "text": ""}
                delta = {"type": "text_delta", "text": block["text"]}
            else:
                empty = {**block, "input": {}}
                written = next(raw)["function"]["arguments"] or "{}"
                json = "{}" if parse_arguments(written) is None else written
                delta = {"type": "input_json_delta", "partial_json": json}
            parts.append(_event("content_block_start", index=at, content_block=empty))
            parts.append(_event("content_block_delta", index=at, delta=delta))
            parts.append(_event("content_block_stop", index=at))
        end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        parts.append(_event("message_delta", delta=end, usage=whole["usage"]))
        return b"".join([*parts, _event("message_stop")])

    def error(self, error: ApiError) -> dict[str, Any]:
        """Convert an error to Anthropic's format."""
        usual = "invalid_request_error" if error.status < 500 else "api_error"
        kind = _ERRORS.get(error.status, usual)
        said = {"type": kind, "message": error.message, "code": error.code}
        return {"type": "error", "error": said}


def _event(kind: str, **values: Any) -> bytes:
    return frame({"type": kind, **values}, kind)


def _blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    calls = message.get("tool_calls") or ()
    if (text := message.get("content")) or not calls:
        yield {"type": "text", "text": text or ""}
    for call in calls:
        function = call["function"]
        # Only objects can be sent as arguments; the session remembers the original.
        given = parse_arguments(function["arguments"] or "{}") or {}
        name = function["name"]
        yield {"type": "tool_use", "id": call["id"], "name": name, "input": given}


def _converted(message: Any, where: str) -> Iterator[dict[str, Any]]:
    """Convert a message to chat messages; each tool result becomes its own message."""
    if not isinstance(message, Mapping):
        raise refused(f"{where} is not an object")
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    blocks = content if isinstance(content, Sequence) else ()
    for place, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text":
            texts.append(str(block.get("text", "")))
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": text_of(block.get("content") or "", f"{where}[{place}]"),
                **({IS_ERROR: True} if block.get("is_error") is True else {}),
            }
        elif kind not in _REASONING:
            raise refused(
                f"{where}.content[{place}] is of type {quoted(kind)}, and this policy "
                "reads text, tool uses and their results"
            )
    if calls:
        text = "".join(texts) or None
        yield {"role": role, "content": text, "tool_calls": calls}
    elif texts:
        yield {"role": role, "content": "".join(texts)}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = orjson.dumps(block.get("input") or {}).decode()
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _tools(tools: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        schema = tool.get("input_schema") if isinstance(tool, Mapping) else None
        if not isinstance(schema, Mapping):
            kind = tool.get("type") if isinstance(tool, Mapping) else tool
            raise refused(
                f"a tool of type {quoted(kind)} has no `input_schema`: those that only "
                "Anthropic runs cannot be called by this policy"
            )
        if not tool.get("defer_loading"):  # else no prompt has it
            text, named = tool.get("description") or "", {"name": tool.get("name")}
            function = {**named, "description": text, "parameters": {**schema}}
            yield {"type": "function", "function": function}


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return "required" if kind == "any" else kind
