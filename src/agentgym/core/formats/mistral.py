"""Parse tool calls of Ministral 3 and Mistral Small.

Ministral 3 writes ``[TOOL_CALLS]f[ARGS]{…}``, Mistral Small ``[TOOL_CALLS][{…}]``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.formats.base import (
    CallText,
    ToolFormat,
    WrittenCall,
    call_of,
    json_call,
    read_object,
)

OPEN = "[TOOL_CALLS]"
_ARGS = re.compile(r"\[ARGS\](?=\s*\{)")
_NAMED = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\]\s*)?(?=\{)")
_LIST, _COMMA, _LIST_END = (
    re.compile(rf"\s*{mark}\s*") for mark in (r"\[", ",", r"\]")
)


class Mistral(ToolFormat):
    """Reads ``[TOOL_CALLS]``, then a name and a JSON object, or a list of calls."""

    name = "mistral"
    vllm_parser = "mistral"
    openers = (OPEN,)
    reasoning_marks = (
        ("[THINK]", "[/THINK]"),
        ("<think>", "</think>"),
    )
    example = '[TOOL_CALLS]f[ARGS]{"k": 1}'

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls from ``start`` on, as either Mistral model writes them."""
        calls: list[WrittenCall] = []
        while (start := text.find(OPEN, start)) >= 0:
            mark = start + len(OPEN)
            end = text.find(OPEN, mark)
            found = _named(text, start) or _listed(text, start)
            calls += found or [
                WrittenCall(start, len(text) if end < 0 else end, mark=mark)
            ]
            start = calls[-1].end
        return calls

    def call_text(self, name: str, written: str) -> CallText:
        """Return the text around arguments, spelled as in the example ``written``."""
        if _LIST.match(written, len(OPEN)):
            before = f'{{"name": {json.dumps(name)}, "arguments": '
            return CallText(OPEN, (before,), "}", "", around=("[", "]"), separator=", ")
        return CallText(OPEN, (name, *_ARGS.findall(written)), "", "")


def _named(text: str, start: int) -> list[WrittenCall]:
    mark = start + len(OPEN)
    name = _NAMED.match(text, mark)
    value = read_object(text, name.end()) if name else None
    if name is None or value is None:
        return []
    values = (name.end(), value.end)
    return [call_of((start, value.end), name[1], text[slice(*values)], values, mark)]


def _listed(text: str, start: int) -> list[WrittenCall]:
    mark = start + len(OPEN)
    opening = _LIST.match(text, mark)
    calls: list[WrittenCall] = []
    at = opening.end() if opening else -1
    while at >= 0 and (value := read_object(text, at)):
        if not {"name", "arguments"} <= set(value.fields):
            return []
        comma, closing = _COMMA.match(text, value.end), _LIST_END.match(text, value.end)
        end = (comma or closing).end() if comma or closing else value.end  # type: ignore[union-attr]
        begun = start if not calls else calls[-1].end
        name, arguments = value.fields["name"][0], value.fields["arguments"]
        calls.append(json_call(text, (begun, end), name, arguments, mark))
        if closing or not comma:
            return calls if closing else []
        at = comma.end()
    return []
