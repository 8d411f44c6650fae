"""Parse tool calls of Gemma 4 and FunctionGemma.

Gemma 4 writes ``<|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>``. FunctionGemma uses
``<start_function_call>``, ``<end_function_call>`` and ``<escape>`` instead.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentgym.core.formats.base import ToolFormat, WrittenCall, call_of
from agentgym.core.formats.literals import Unreadable, read_quoteless_object

_MARKS = {
    "<|tool_call>": ("<tool_call|>", '<|"|>'),
    "<start_function_call>": ("<end_function_call>", "<escape>"),
}
_CALL = re.compile("|".join(map(re.escape, _MARKS)))
_NAME = re.compile(r"\s*call:\s*([^\s{]+)\s*(?=\{)")


class Gemma(ToolFormat):
    """Reads tool calls that are a name and an object in Gemma's own notation."""

    name: ClassVar[str] = "gemma"
    vllm_parser: ClassVar[str] = "gemma4"
    openers: ClassVar[tuple[str, ...]] = tuple(_MARKS)
    reasoning_marks: ClassVar[tuple[tuple[str, str], ...]] = (
        ("<|channel>thought", "<channel|>"),
    )
    end_marks: ClassVar[tuple[str, ...]] = ("<|tool_response>", "<turn|>")
    example: ClassVar[str] = '<|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>'

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
    if name is not None:
        try:
            arguments, end = read_quoteless_object(text, name.end(), quote)
        except Unreadable:
            pass
        else:
            values = (name.end(), end)
            rest = text[end:]
            if rest.lstrip().startswith(closing):
                end += len(rest) - len(rest.lstrip()) + len(closing)
                return call_of(text, (start, end), name[1], arguments, values, mark)
            if not rest.strip():
                return call_of(text, (start, end), name[1], arguments, values, mark)
    ends = [text.find(closing, mark), text.find(found[0], mark)]
    closed, reopened = (len(text) if at < 0 else at for at in ends)
    end = reopened if reopened < closed else min(closed + len(closing), len(text))
    return WrittenCall(start, end, mark=mark)
