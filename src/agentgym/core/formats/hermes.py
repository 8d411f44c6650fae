"""Parse tool calls of Qwen2.5 and Qwen3: JSON objects in ``<tool_call>`` tags."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.formats.base import (
    CallText,
    ToolFormat,
    WrittenCall,
    json_call,
    malformed_call,
    read_object,
)

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CLOSING = re.compile(rf"\s*{CLOSE}")
_UNCLOSED = re.compile(r"\s*(?:```\s*)?\Z")
"""The end of an answer whose last call lacks ``</tool_call>``; vLLM also accepts it."""


class Hermes(ToolFormat):
    """Reads tool calls that are JSON objects, each in a ``<tool_call>`` tag."""

    name = "hermes"
    vllm_parser = "hermes"
    openers = (OPEN,)
    example = '<tool_call>{"name": "f", "arguments": {"k": 1}}</tool_call>'

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls from ``start`` on; arguments are an object or JSON text."""
        calls = []
        while (start := text.find(OPEN, start)) >= 0:
            calls.append(_read(text, start))
            start = calls[-1].end
        return calls

    def call_text(self, name: str, written: str) -> CallText:
        """Return the text around a call's arguments; ignore ``written``."""
        before = f'{{"name": {json.dumps(name)}, "arguments": '
        return CallText(OPEN, (before,), "}", CLOSE)


def _read(text: str, start: int) -> WrittenCall:
    mark = start + len(OPEN)
    found = read_object(text, mark)
    if found is not None:
        closing = _CLOSING.match(text, found.end) or _UNCLOSED.match(text, found.end)
        if closing and {"name", "arguments"} <= set(found.fields):
            span = (start, closing.end())
            name = found.fields["name"][0]
            return json_call(text, span, name, found.fields["arguments"], mark)
    return malformed_call(text, start, mark, CLOSE)
