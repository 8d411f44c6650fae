"""StreamAssembler: rebuild a whole answer from a remote server's stream."""

from typing import Any

from agentgym.rollout.gateway.wire import load_json

_SAID_ONCE = ("finish_reason", "id", "role", "routed_experts", "stop_reason", "type")
"""Fields whose later value replaces the earlier one; other texts are joined."""


class StreamAssembler:
    """Rebuilds a complete answer from a server's stream of events (SSE)."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self.is_done = False  # whether [DONE] has arrived
        self.is_ended = False  # whether the empty line after it has arrived, too

    def feed(self, lines: bytes) -> None:
        """Add complete lines of the stream; raise ValueError if they are malformed."""
        for line in lines.split(b"\n")[:-1]:
            if not line.startswith(b"data:"):
                self.is_ended |= self.is_done and not line.strip()
                continue
            value = line[5:].strip()
            if value == b"[DONE]":
                self.is_done = True
            else:
                try:
                    self._take(load_json(value))
                except (AttributeError, KeyError, TypeError) as error:
                    message = f"a part of it has an unknown shape ({error})"
                    raise ValueError(message) from None

    @property
    def error(self) -> Any:
        """The error that the server sent in the stream, or None."""
        return self._body.get("error") or None

    @property
    def response(self) -> dict[str, Any]:
        """The answer so far, as the body of a response without streaming."""
        if self.error:
            return self._body
        choice = {"logprobs": None, **self._choice}
        if "text" not in choice:
            choice["message"] = self._message
            if self._calls:
                calls = [self._calls[index] for index in sorted(self._calls)]
                choice["message"] = {**self._message, "tool_calls": calls}
        return {**self._body, "choices": [choice]}

    def _take(self, chunk: dict[str, Any]) -> None:
        for key, value in chunk.items():
            if key == "object":
                self._body[key] = str(value).removesuffix(".chunk")
            elif key != "choices" and (value is not None or key not in self._body):
                self._body[key] = value
        for choice in chunk.get("choices") or ():
            if choice.pop("index", 0) == 0:
                delta = choice.pop("delta", None) or {}
                for call in delta.pop("tool_calls", None) or ():
                    empty = {"name": "", "arguments": ""}
                    whole = {"id": "", "type": "function", "function": empty}
                    index = call.pop("index", None)
                    if index is None:  # not all servers number their calls
                        function = call.get("function") or {}
                        begins = bool(call.get("id") or function.get("name"))
                        index = max(max(self._calls, default=-1) + begins, 0)
                    if not isinstance(index, int):
                        raise TypeError(f"a tool call's index is {index!r:.40}")
                    _grow(self._calls.setdefault(index, whole), call)
                _grow(self._message, delta)
                _grow(self._choice, choice)


def _grow(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Merge ``part`` into ``whole``: extend texts and lists, replace other values."""
    for key, value in part.items():
        before = whole.get(key)
        if value is None or (key in _SAID_ONCE and not value):
            continue
        if before is None or key in _SAID_ONCE:
            whole[key] = value
        elif isinstance(value, dict):
            _grow(before, value)
        elif isinstance(value, list):
            before.extend(value)
        else:
            whole[key] = before + value if isinstance(value, str) else value
