"""Server-sent events: frames, the chunks of a streamed answer, and their assembly."""

import time
from typing import Any

import orjson

from agentgym.core.policy import ChatResult
from agentgym.rollout.gateway.completions import tool_calls, usage
from agentgym.rollout.store.calls import log_prob_content

DONE = b"data: [DONE]\n\n"


def frame(chunk: dict[str, Any]) -> bytes:
    """Return a chunk as one event."""
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


class ChunkWriter:
    """Turns what a policy samples into the frames of a streamed chat completion.

    Text is sent on as it comes; tool calls follow parsed, with the end.

    Args:
        call_id: The completion's id.
        model: The policy's name.
        logprobs: Whether the last chunk holds log-probabilities.
        include_usage: Whether a chunk with the usage follows it.
    """

    def __init__(
        self, call_id: str, model: str, *, logprobs: bool, include_usage: bool
    ) -> None:
        self._head = {
            "id": call_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._logprobs = logprobs
        self._include_usage = include_usage
        self._sent = ""

    def start(self) -> bytes:
        """Return the first frame: who speaks."""
        return self._frame({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """Return the frame of a piece of the answer's text."""
        self._sent += piece
        return self._frame({"content": piece}) if piece else b""

    def end(self, result: ChatResult) -> bytes:
        """Return the frames that end the answer: the rest of it, ids, usage."""
        rest = _rest(result.content or "", self._sent)
        frames = [self._frame({"content": rest})] if rest else []
        calls = [
            {"index": index, **call}
            for index, call in enumerate(tool_calls(result.tool_calls))
        ]
        if calls:
            frames.append(self._frame({"tool_calls": calls}))
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {},
            "finish_reason": result.finish_reason,
            "token_ids": result.response_ids,
        }
        if self._logprobs:
            choice["logprobs"] = log_prob_content(result.response_ids, result.logprobs)
        ids = {"prompt_token_ids": result.prompt_ids}
        frames.append(frame({**self._head, "choices": [choice], **ids}))
        if self._include_usage:
            frames.append(frame({**self._head, "choices": [], "usage": usage(result)}))
        return b"".join((*frames, DONE))

    def _frame(self, delta: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return frame({**self._head, "choices": [choice]})


class StreamAssembler:
    """Puts a streamed answer of a remote server back together, exactly.

    Feed it the bytes as they come; :attr:`response` is then the body that the
    server would have sent without streaming.

    Attributes:
        is_done: ``[DONE]`` was said.
        is_ended: The empty line that ends that event has come as well.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._body: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._text: str | None = None
        self._logprobs: dict[str, list[Any]] = {}
        self.is_done = False
        self.is_ended = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream.

        Raises:
            ValueError: They are no server-sent events with JSON in them.
        """
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                self.is_ended |= self.is_done and not line.strip()
                continue
            value = line[5:].strip()
            if value == b"[DONE]":
                self.is_done = True
            else:
                self._take(orjson.loads(value))

    @property
    def response(self) -> dict[str, Any]:
        """The body, as far as it has come."""
        if self._body.get("error"):
            return self._body
        choice = dict(self._choice)
        if self._text is not None:
            choice["text"] = self._text
        else:
            choice["message"] = dict(self._message)
            if self._calls:
                calls = [self._calls[index] for index in sorted(self._calls)]
                choice["message"]["tool_calls"] = calls
        choice["logprobs"] = self._logprobs or None
        return {**self._body, "choices": [choice]}

    def _take(self, chunk: dict[str, Any]) -> None:
        for key, value in chunk.items():
            if key == "object":
                self._body[key] = str(value).removesuffix(".chunk")
            elif key != "choices" and (value is not None or key not in self._body):
                self._body[key] = value
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        for key, value in choice.items():
            if value is None or key in ("delta", "index"):
                continue
            if key == "token_ids":
                self._choice[key] = [*self._choice.get(key, ()), *value]
            elif key == "logprobs":
                for name, items in value.items():
                    self._logprobs.setdefault(name, []).extend(items or ())
            elif key == "text":
                self._text = (self._text or "") + value
            else:
                self._choice[key] = value
        self._take_delta(choice.get("delta") or {})

    def _take_delta(self, delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    self._take_call(call)
            elif isinstance(value, str) and key != "role":
                self._message[key] = (self._message.get(key) or "") + value
            elif value is not None:
                self._message[key] = value

    def _take_call(self, delta: dict[str, Any]) -> None:
        call = self._calls.setdefault(
            delta.get("index", 0),
            {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
        )
        call["id"] = delta.get("id") or call["id"]
        function = delta.get("function") or {}
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


def _rest(content: str, sent: str) -> str:
    """Return what of ``content`` was not sent."""
    return content[len(sent) :] if content.startswith(sent) else ""
