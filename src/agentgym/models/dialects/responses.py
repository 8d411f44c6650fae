"""ResponsesDialect: convert between OpenAI's Responses API and chat completions."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentgym.core.openai import Completion
from agentgym.models.dialects.base import Dialect, frame, refused, text_of
from agentgym.security.redaction import quoted

_SAME = ("model", "temperature", "top_p", "parallel_tool_calls", "user", "seed")
_TEXTS = ("input_text", "output_text", "text")


class ResponsesDialect(Dialect):
    """Converts between OpenAI's ``POST /v1/responses`` and chat completions."""

    path = "responses"

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Convert a request of the Responses API to a chat-completion request."""
        if body.get("previous_response_id") or body.get("conversation"):
            raise refused(
                "previous_response_id and conversation are not supported, as the "
                "server keeps none: send all items in `input`, with store=false"
            )
        found = {key: body[key] for key in _SAME if body.get(key) is not None}
        if (most := body.get("max_output_tokens")) is not None:
            found["max_tokens"] = most
        messages: list[dict[str, Any]] = []
        if instructions := body.get("instructions"):
            messages.append({"role": "system", "content": instructions})
        given = body.get("input")
        items = (
            given if isinstance(given, list) else [{"role": "user", "content": given}]
        )
        for place, item in enumerate(items):
            _add(messages, item, f"input[{place}]")
        found["messages"] = messages
        if tools := [_tool(each) for each in body.get("tools") or ()]:
            found["tools"] = tools
        choice = body.get("tool_choice")
        if isinstance(choice, Mapping):
            named = {"name": choice.get("name")}
            found["tool_choice"] = {"type": "function", "function": named}
        elif choice is not None:
            found["tool_choice"] = choice
        form = (body.get("text") or {}).get("format") or {}
        if form.get("type") == "json_schema":
            schema = {key: form[key] for key in form if key != "type"}
            found["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif form.get("type") == "json_object":
            found["response_format"] = form
        return found

    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Convert a chat completion to a response of the Responses API."""
        choice = Completion(completion).choice
        usage = completion.get("usage") or {}
        is_cut = choice.get("finish_reason") == "length"
        name = completion["id"]
        return {
            "id": f"resp_{name}",
            "object": "response",
            "created_at": completion.get("created", 0),
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "error": None,
            "model": completion["model"],
            "output": list(_items(choice["message"], name)),
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "usage": {
                "input_tokens": usage.get("prompt_tokens", 0),
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.get("completion_tokens", 0),
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.get("total_tokens", 0),
            },
        }

    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Convert a chat completion to server-sent events of the Responses API."""
        events = _events(self.answer(completion, body))
        return b"".join(
            frame({**event, "sequence_number": number}, event["type"])
            for number, event in enumerate(events)
        )


def _events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index}
        at = {**place, "item_id": item["id"]}
        is_call = item["type"] == "function_call"
        empty: dict[str, Any] = {"arguments": ""} if is_call else {"content": []}
        begun = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", **place, "item": begun}
        if is_call:
            kind, written = "response.function_call_arguments", item["arguments"]
            yield {"type": f"{kind}.delta", **at, "delta": written}
            name = item["name"]
            yield {"type": f"{kind}.done", **at, "arguments": written, "name": name}
        else:
            [part] = item["content"]
            at = {**at, "content_index": 0}
            kind, said = "response.output_text", {"text": part["text"], "logprobs": []}
            added = {"part": {**part, "text": ""}}
            yield {"type": "response.content_part.added", **at, **added}
            delta = {"delta": part["text"], "logprobs": []}
            yield {"type": f"{kind}.delta", **at, **delta}
            yield {"type": f"{kind}.done", **at, **said}
            yield {"type": "response.content_part.done", **at, "part": part}
        yield {"type": "response.output_item.done", **place, "item": item}
    end = "incomplete" if whole["status"] == "incomplete" else "completed"
    yield {"type": f"response.{end}", "response": whole}


def _items(message: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    calls = message.get("tool_calls") or ()
    if (text := message.get("content")) or not calls:
        part: dict[str, Any] = {
            "type": "output_text",
            "text": text or "",
            "annotations": [],
        }
        yield {
            "type": "message",
            "id": f"msg_{name}",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    for call in calls:
        yield {
            "type": "function_call",
            "id": f"fc_{call['id']}",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }


def _add(messages: list[dict[str, Any]], item: Any, where: str) -> None:
    """Append a message or tool result of a request's input to ``messages``."""
    # A function call is added to the model's message before it. Reasoning is left out.
    kind = item.get("type", "message") if isinstance(item, Mapping) else None
    if kind == "message":
        content = text_of(item.get("content"), where, _TEXTS)
        messages.append({"role": item.get("role", "user"), "content": content})
    elif kind == "function_call":
        last = messages[-1] if messages else {}
        if last.get("role") != "assistant":
            messages.append({"role": "assistant", "content": None})
        function = {"name": item.get("name"), "arguments": item.get("arguments") or ""}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        text = text_of(item.get("output"), where, _TEXTS)
        name = item.get("call_id")
        messages.append({"role": "tool", "tool_call_id": name, "content": text})
    elif kind != "reasoning":
        raise refused(
            f"{where} is of type {quoted(kind)}, and this policy reads messages, "
            "function calls and their outputs"
        )


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        kind = tool.get("type") if isinstance(tool, Mapping) else tool
        raise refused(
            f"a tool of type {quoted(kind)} is run by OpenAI alone, and cannot be "
            "called by this policy"
        )
    function = {key: tool[key] for key in tool if key not in ("type", "strict")}
    return {"type": "function", "function": function}
