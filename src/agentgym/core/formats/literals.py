"""Parse values in Python's and in Gemma's notation at an offset in a text.

Both parsers also accept common mistakes: newlines within quotes, and true and null in
the spelling of Python or of JSON.
"""

import json
import re
from collections.abc import Callable
from typing import Any

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_WORD = re.compile(r"(True|False|None|true|false|null)\b")
_WORDS: dict[str, Any] = {
    "True": True, "true": True, "False": False, "false": False,
    "None": None, "null": None,
}  # fmt: skip
_BARE_KEY = re.compile(r"\s*([^\s:,{}\[\]]+)\s*:\s*")
_ESCAPE = re.compile(
    r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|.)", re.DOTALL
)
_SHORT = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0",
    "a": "\a", "\n": "",
}  # fmt: skip
_DEEPEST = 32


class Unreadable(ValueError):
    """Raised if the text at an offset is not a value in the expected notation."""


def skip_space(text: str, at: int) -> int:
    """Return the offset of the next character that is not white space."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def read_literal(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    """Return the Python literal at ``at`` and its end, or raise Unreadable."""
    at = skip_space(text, at)
    if depth > _DEEPEST or at >= len(text):
        raise Unreadable
    first = text[at]
    if first in "\"'":
        return _quoted(text, at)
    if first in "[(":
        end = "]" if first == "[" else ")"
        return _items(text, at, end, lambda at: read_literal(text, at, depth + 1))
    if first == "{":
        return _mapping(text, at, depth)
    return read_word(text, at)


def read_word(text: str, at: int) -> tuple[Any, int]:
    """Read a number, true, false or null of Python or JSON, or raise Unreadable."""
    if word := _WORD.match(text, at):
        return _WORDS[word[1]], word.end()
    if number := _NUMBER.match(text, at):
        written = number[0].replace("_", "").removeprefix("+")
        try:
            return int(written), number.end()
        except ValueError:
            return float(written), number.end()
    raise Unreadable


def read_quoteless(text: str, at: int, quote: str, depth: int = 0) -> tuple[Any, int]:
    """Read a value in Gemma's notation, or raise Unreadable.

    Strings stand between two ``quote`` marks, keys have no quotes.
    """
    at = skip_space(text, at)
    if depth > _DEEPEST or at >= len(text):
        raise Unreadable
    if text.startswith(quote, at):
        end = text.find(quote, at + len(quote))
        if end < 0:
            raise Unreadable
        return text[at + len(quote) : end], end + len(quote)
    if text[at] == "{":
        return read_quoteless_object(text, at, quote, depth)
    if text[at] == "[":
        return _items(
            text, at, "]", lambda at: read_quoteless(text, at, quote, depth + 1)
        )
    if text[at] == '"':
        try:
            return json.JSONDecoder(strict=False).raw_decode(text, at)
        except ValueError:
            raise Unreadable from None
    return read_word(text, at)


def read_quoteless_object(
    text: str, at: int, quote: str, depth: int = 0
) -> tuple[dict[str, Any], int]:
    """Read an object ``{key:value,…}`` of Gemma; return it and its end offset."""
    if not text.startswith("{", at):
        raise Unreadable
    values: dict[str, Any] = {}
    at = skip_space(text, at + 1)
    while not text.startswith("}", at):
        if text.startswith(quote, at):
            key, at = read_quoteless(text, at, quote, depth + 1)
            at = skip_space(text, at)
            if not text.startswith(":", at):
                raise Unreadable
            at += 1
        else:
            bare = _BARE_KEY.match(text, at)
            if bare is None:
                raise Unreadable
            key, at = bare[1].strip("\"'"), bare.end()
        values[key], at = read_quoteless(text, at, quote, depth + 1)
        at = _separated(text, at, "}")
    return values, at + 1


def _separated(text: str, at: int, end: str) -> int:
    """Return the offset of the element after a comma, or of ``end``, e.g. ``]``."""
    at = skip_space(text, at)
    if text.startswith(",", at):
        return skip_space(text, at + 1)
    if text.startswith(end, at):
        return at
    raise Unreadable


def _items(
    text: str, at: int, end: str, read: Callable[[int], tuple[Any, int]]
) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = skip_space(text, at + 1)
    while not text.startswith(end, at):
        value, at = read(at)
        values.append(value)
        at = _separated(text, at, end)
    return values, at + 1


def _mapping(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    values: dict[str, Any] = {}
    at = skip_space(text, at + 1)
    while not text.startswith("}", at):
        key, at = read_literal(text, at, depth + 1)
        at = skip_space(text, at)
        if not text.startswith(":", at) or isinstance(key, (list, dict)):
            raise Unreadable
        value, at = read_literal(text, at + 1, depth + 1)
        values[key if isinstance(key, str) else json.dumps(key)] = value
        at = _separated(text, at, "}")
    return values, at + 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    at += len(quote)
    parts: list[str] = []
    while not text.startswith(quote, at):
        if at >= len(text):
            raise Unreadable
        if escape := _ESCAPE.match(text, at):
            parts.append(_unescaped(escape[1]))
            at = escape.end()
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts), at + len(quote)


def _unescaped(escape: str) -> str:
    if len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code <= 0x10FFFF else "�"
    if escape in "\\'\"":
        return escape
    return _SHORT.get(escape, "\\" + escape)
