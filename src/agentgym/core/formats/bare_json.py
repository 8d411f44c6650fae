"""Parse tool calls of Llama 3.1 and 3.2: ``{"name": "f", "parameters": {…}}``."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.formats.base import (
    CallText,
    ToolFormat,
    WrittenCall,
    json_call,
    read_object,
)

_CALL = re.compile(r"(?:<\|python_tag\|>\s*)?\{")
_BEGUN = re.compile(r'\s*(?:<\|python_tag\|>\s*)?\{\s*"(?:name|type|parameters)"')
_SEPARATOR = re.compile(r"\s*;\s*")


class BareJson(ToolFormat):
    """Reads tool calls that are bare JSON objects with a name and parameters."""

    name = "json"
    vllm_parser = "llama3_json"
    openers = (
        "<|python_tag|>", '{"name"', '{ "name"', '{"type"', '{\n"name"', '{\n  "name"',
    )  # fmt: skip
    end_marks = ("<|eom_id|>",)
    example = '{"name": "f", "parameters": {"k": 1}}'

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls from ``start`` on: objects with a name and parameters."""
        calls: list[WrittenCall] = []
        while found := _CALL.search(text, start):
            brace = text.index("{", found.start())
            value = read_object(text, brace)
            first = found.start()
            if calls and (gap := _SEPARATOR.fullmatch(text, calls[-1].end, first)):
                first = gap.start()
            if value is None:
                if not text[:first].strip() and _BEGUN.match(text, first):
                    calls.append(WrittenCall(first, len(text), mark=brace + 1))
                    return calls
                start = found.end()
                continue
            start = value.end
            key = "parameters" if "parameters" in value.fields else "arguments"
            name = value.fields.get("name", value.fields.get("function", (None,)))[0]
            if not isinstance(name, str) or key not in value.fields:
                continue
            span = (first, start)
            calls.append(json_call(text, span, name, value.fields[key], brace + 1))
        return calls

    def call_text(self, name: str, written: str) -> CallText:
        """Return the text around a call's arguments; ignore ``written``."""
        before = f'{{"name": {json.dumps(name)}, "parameters": '
        return CallText("", (before,), "}", "")
