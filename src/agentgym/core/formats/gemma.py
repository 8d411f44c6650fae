"""Parse tool calls of Gemma 4 and FunctionGemma.

Gemma 4 writes ``<|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>``. FunctionGemma uses
``<start_function_call>``, ``<end_function_call>`` and ``<escape>`` instead.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentgym.core.formats.base import (
    ToolFormat,
    WrittenCall,
    call_of,
    malformed_call,
)
from agentgym.core.formats.literals import (
    Unreadable,
    read_quoteless_object,
    skip_space,
)

_MARKS = {
    "<|tool_call>": ("<tool_call|>", '<|"|>'),
    "<start_function_call>": ("<end_function_call>", "<escape>"),
}
_CALL = re.compile("|".join(map(re.escape, _MARKS)))
_NAME = re.compile(r"\s*call:\s*([^\s{]+)\s*(?=\{)")


class Gemma(ToolFormat):
    """Reads tool calls that are a name and an object in Gemma's own notation."""

    name = "gemma"
    vllm_parser = "gemma4"
    openers = tuple(_MARKS)
    reasoning_marks = (("<|channel>thought", "<channel|>"),)
    end_marks = ("<|tool_response>", "<turn|>")
    example = '<|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>'

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls in ``text`` from offset ``start`` on; ignore ``tools``."""
        calls = []
        while found := _CALL.search(text, start):
            calls.append(_read(text, found))
            start = calls[-1].end
        return calls


def _read(text: str, found: re.Match[str]) -> WrittenCall:
    closing, quote = _MARKS[found[0]]
    start, mark = found.span()
    name = _NAME.match(text, mark)
    with suppress(Unreadable):
        if name is not None:
            arguments, end = read_quoteless_object(text, name.end(), quote)
            values = (name.end(), end)
            after = skip_space(text, end)
            if text.startswith(closing, after):
                end = after + len(closing)
            if end > values[1] or after == len(text):
                return call_of((start, end), name[1], arguments, values, mark)
    return malformed_call(text, start, mark, closing)
