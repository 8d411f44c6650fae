"""Parse tool calls of LFM2, Olmo 3 and Llama 3.2, e.g. ``[f(a="x"), g()]``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym.core.formats.base import CallText, ToolFormat, WrittenCall, call_of
from agentgym.core.formats.literals import Unreadable, read_literal, skip_space

_MARKS = {
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<function_calls>": "</function_calls>",
}
_OPEN = re.compile("|".join(map(re.escape, _MARKS)))
_CALL = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*\(")
_KEY = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*")
_BARE = re.compile(r"\s*\[\s*[A-Za-z_][\w.\-]*\s*\(")


class Pythonic(ToolFormat):
    """Reads calls that are written as Python calls, in a list or one per line."""

    name = "pythonic"
    vllm_parser = "pythonic"
    openers = tuple(_MARKS)
    example = "<|tool_call_start|>[f(k=1)]<|tool_call_end|>"

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls in the part of ``text`` that begins at index ``start``."""
        # Without a mark, the rest must be a list of calls and nothing else.
        calls: list[WrittenCall] = []
        if not _OPEN.search(text, start):
            return _read(text, start, start, "") if _BARE.match(text, start) else []
        while found := _OPEN.search(text, start):
            calls += _read(text, *found.span(), _MARKS[found[0]])
            start = calls[-1].end
        return calls

    def call_text(self, name: str, written: str) -> CallText:
        """Return the text around arguments, with the marks of the call ``written``."""
        opening = next((mark for mark in _MARKS if written.startswith(mark)), "")
        return CallText(
            opening,
            (f"{name}(",),
            ")",
            _MARKS.get(opening, ""),
            "python",
            around=("[", "]"),
            separator=", ",
        )

    def safe_content(self, text: str, *, prefix: str = "") -> str:
        """Return the text to stream; nothing after ``[``, which may begin calls."""
        shown = super().safe_content(text, prefix=prefix)
        return "" if shown.lstrip().startswith("[") else shown


def _read(text: str, start: int, mark: int, closing: str) -> list[WrittenCall]:
    """Return the calls after a mark, or one malformed call if they cannot be read."""
    at = skip_space(text, mark)
    is_list = text.startswith("[", at)
    calls: list[WrittenCall] = []
    at = skip_space(text, at + 1) if is_list else at
    try:
        while not _ends(text, at, is_list=is_list, closing=closing):
            begun = start if not calls else calls[-1].end
            call = _read_call(text, begun, at, mark)
            at = skip_space(text, call.end)
            if text.startswith(",", at):
                at = skip_space(text, at + 1)
            calls.append(replace(call, end=at))
        if not calls:
            raise Unreadable
    except Unreadable:
        found = text.find(closing, mark) if closing else -1
        end = len(text) if found < 0 else found + len(closing)
        return [WrittenCall(start, end, mark=mark)]
    at = skip_space(text, at + 1) if is_list else at
    if closing and text.startswith(closing, at):
        at += len(closing)
    calls[-1] = replace(calls[-1], end=at)
    return calls


def _ends(text: str, at: int, *, is_list: bool, closing: str) -> bool:
    if is_list:
        if not text.startswith("]", at):
            return False
        after = skip_space(text, at + 1)
        if after < len(text) and not (closing and text.startswith(closing, after)):
            raise Unreadable
        return True
    return at >= len(text) or bool(closing and text.startswith(closing, at))


def _read_call(text: str, begun: int, at: int, mark: int) -> WrittenCall:
    name = _CALL.match(text, at)
    if name is None:
        raise Unreadable
    at = first = name.end()
    arguments: dict[str, Any] = {}
    at = skip_space(text, at)
    while not text.startswith(")", at):
        key = _KEY.match(text, at)
        if key is None:
            raise Unreadable
        arguments[key[1]], at = read_literal(text, key.end())
        at = skip_space(text, at)
        if text.startswith(",", at):
            at = skip_space(text, at + 1)
        elif not text.startswith(")", at):
            raise Unreadable
    call = call_of((begun, at + 1), name[1], arguments, (first, at), mark)
    if call.malformed:
        raise Unreadable
    return call
