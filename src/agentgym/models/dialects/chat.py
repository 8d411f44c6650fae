"""ChatDialect: OpenAI's chat completions, which need almost no conversion."""

import time
from collections.abc import Mapping
from typing import Any

from agentgym.models.dialects.base import Dialect, frame

_STREAMING = ("stream", "stream_options")


class ChatDialect(Dialect):
    """Passes chat completions on unchanged, except that it converts them to streams."""

    path = "chat/completions"

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request without its streaming options."""
        return {key: body[key] for key in body if key not in _STREAMING}

    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the completion unchanged."""
        return completion

    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Return the completion as the chunks of a stream."""
        writer = ChunkWriter(completion["id"], completion["model"], body)
        return writer.start() + writer.end(completion)


class ChunkWriter:
    """Writes a policy's answer as the chunks of a streamed chat completion."""

    def __init__(self, call_id: str, model: str, body: Mapping[str, Any]) -> None:
        self._head = {
            "id": call_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        options = body.get("stream_options")
        self._usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._sent = ""

    def start(self) -> bytes:
        """Return the first chunk, with the role."""
        return self._frame({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """Return the chunk for a piece of text; empty for an empty piece."""
        self._sent += piece
        return self._frame({"content": piece}) if piece else b""

    def end(self, whole: dict[str, Any]) -> bytes:
        """Return the last chunks: text that was not sent, tool calls, token numbers."""
        choice = whole["choices"][0]
        content = choice["message"]["content"] or ""
        frames = []
        if content.startswith(self._sent) and content != self._sent:
            frames.append(self._frame({"content": content[len(self._sent) :]}))
        if calls := choice["message"].get("tool_calls"):
            calls = [{"index": place, **call} for place, call in enumerate(calls)]
            frames.append(self._frame({"tool_calls": calls}))
        last = {k: v for k, v in choice.items() if k != "message"} | {"delta": {}}
        ids = {k: v for k, v in whole.items() if k == "prompt_token_ids"}
        frames.append(frame({**self._head, "choices": [last], **ids}))
        if self._usage:
            usage = {"choices": [], "usage": whole["usage"]}
            frames.append(frame(self._head | usage))
        return b"".join((*frames, b"data: [DONE]\n\n"))

    def _frame(self, delta: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return frame({**self._head, "choices": [choice]})
