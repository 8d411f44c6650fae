"""Parse tool calls of Qwen3-Coder and Qwen3.5.

A call is ``<function=f><parameter=k>v</parameter></function>``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.formats.base import (
    CallText,
    ToolFormat,
    WrittenCall,
    call_of,
    parameter_types,
    typed_value,
)

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(r"(?:<tool_call>\s*)?<function=([^>\n]*)>|<tool_call>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]*)>")
_VALUE_END = re.compile(
    r"</parameter>(?=\s*(?:<parameter=|</function>|</tool_call>|\Z))"
)
"""The end of a value: a ``</parameter>`` with another tag after it.

A ``</parameter>`` in other places belongs to the value.
"""
_END = re.compile(r"\s*</function>(?:\s*</tool_call>)?|\s*</tool_call>")
"""The end of a call. A call without this end was cut off and may lack parameters."""
_BROKEN_END = re.compile(r"</tool_call>|(?=<tool_call>)|(?=<function=)|\Z")


class Xml(ToolFormat):
    """Reads tool calls that are tags for the function and for each parameter."""

    # One newline after a value's opening tag and one before its closing tag belong to
    # the format.
    name = "xml"
    vllm_parser = "qwen3_coder"
    openers = (OPEN, "<function=")
    example = "<tool_call><function=f><parameter=k>1</parameter></function></tool_call>"

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls from ``start`` on, with values of the types in ``tools``."""
        calls = []
        while found := _CALL.search(text, start):
            calls.append(_read(text, found, tools))
            start = calls[-1].end
        return calls

    def call_text(self, name: str, written: str) -> CallText:
        """Return the text around arguments, with the tags of the call ``written``."""
        marks = (OPEN, CLOSE) if written.startswith(OPEN) else ("", "")
        return CallText(marks[0], (f"<function={name}>",), "", marks[1], "tags")


def _read(
    text: str, found: re.Match[str], tools: Sequence[Mapping[str, Any]]
) -> WrittenCall:
    start, at = found.span()
    mark = min(at, start + len(OPEN)) if text.startswith(OPEN, start) else start
    name = (found[1] or "").strip()
    types = parameter_types(tools, name)
    arguments: dict[str, Any] = {}
    values = (at, at)
    while opening := _PARAMETER.match(text, at):
        closing = _VALUE_END.search(text, opening.end())
        if closing is None:
            break
        key = opening[1].strip()
        raw = text[opening.end() : closing.start()]
        raw = raw.removeprefix("\n").removesuffix("\n")
        arguments[key] = typed_value(raw, types.get(key))
        at = closing.end()
        first = values[0] if len(arguments) > 1 else text.index("<", opening.start())
        values = (first, at)
    ending = _END.match(text, at)
    if name and ending is not None:
        return call_of((start, ending.end()), name, arguments, values, mark)
    broken = _BROKEN_END.search(text, max(found.end(), mark))
    end = len(text) if broken is None else broken.end()
    return WrittenCall(start, end, mark=mark)
