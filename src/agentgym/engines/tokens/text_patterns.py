"""Convert a JSON schema's ``pattern`` and ``format`` into regular expressions.

In tool call formats that write JSON, ``llguidance`` applies ``pattern`` and ``format``
itself. The other formats need regular expressions, in the dialect of Rust's ``regex``
library that the grammars use.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

_ANY = r"(.|\n)*"
_PART = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
"""A part of a pattern: an escape, a character class or a character."""
_DATE = (
    r"[0-9]{4}-(((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01]))|((0[469]|11)-(0[1-9]|[12]["
    r"0-9]|30))|(02-(0[1-9]|[12][0-9])))"
)
_TIME = (
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_HEX = r"[0-9a-fA-F]"
_FORMATS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "email": rf"[a-zA-Z0-9!#$%&*+=?^_|~-]+(\.[a-zA-Z0-9!#$%&*+=?^_|~-]+)*@{_HOST}",
    "hostname": _HOST,
    "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "uri": r"[a-zA-Z][a-zA-Z0-9+.-]*:[!#$&-;=?-Z_a-z~%\[\]]+",
    "uuid": rf"{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
}
"""Regular expression of each ``format``. Other formats are ignored."""
_CLASSES: Mapping[str, str] = {"d": "0-9", "w": "A-Za-z0-9_"}
r"""Replacements for ``\d`` and ``\w``, which match only ASCII in JSON schemas. In Rust
they would match all of Unicode."""


def whole_patterns(schema: Mapping[str, Any]) -> list[str]:
    """Return regular expressions for a schema's ``pattern`` and ``format``.

    The whole string must match each of them; they have no ``^`` or ``$``. A ``pattern``
    is ignored if grammars do not support it, e.g. since it has a look-ahead.
    """
    found = []
    if isinstance(pattern := schema.get("pattern"), str):
        found.append(_whole(pattern))
    if expression := _FORMATS.get(str(schema.get("format"))):
        found.append(expression)
    return [each for each in found if each is not None]


@functools.lru_cache(maxsize=512)
def _whole(pattern: str) -> str | None:
    """Convert a pattern that must be found in a text to one for the whole text.

    None if grammars do not support the pattern.
    """
    branches = []
    for branch in _branches(pattern):
        begins, ends = branch[:1] == ["^"], branch[-1:] == ["$"]
        parts = branch[begins : len(branch) - ends]
        if "^" in parts or "$" in parts:
            return None
        body = "".join(map(_rewritten, parts))
        branches.append(f"{'' if begins else _ANY}({body}){'' if ends else _ANY}")
    whole = f"({'|'.join(branches)})"
    return whole if _compiles(whole) else None


def _branches(pattern: str) -> list[list[str]]:
    """Split a pattern at its top-level ``|``; return each alternative's parts."""
    found: list[list[str]] = [[]]
    depth = 0
    for part in _PART.findall(pattern):
        depth += (part == "(") - (part == ")")
        if part == "|" and not depth:
            found.append([])
        else:
            found[-1].append(part)
    return found


def _rewritten(part: str) -> str:
    """Convert one part of a pattern to the dialect that the grammars use."""
    if part.startswith("["):
        inner = part[1:-1]
        begin = "^" * inner.startswith("^")
        pieces = [
            _CLASSES.get(each[1:], each) if each.startswith("\\") else _in_class(each)
            for each in _PART.findall(inner[len(begin) :])
        ]
        return f"[{begin}{''.join(pieces)}]"
    if part.startswith("\\"):
        found = _CLASSES.get(part[1:])
        return f"[{found}]" if found else part
    return {"/": "\\/", "\n": "\\n", "\r": "\\r"}.get(part, part)


def _in_class(character: str) -> str:
    """Return a character for use in ``[…]``, escaped if Rust's ``regex`` needs it."""
    if character in "[&~/":
        return "\\" + character
    return {"\n": "\\n", "\r": "\\r"}.get(character, character)


def _compiles(expression: str) -> bool:
    from llguidance import LLMatcher

    return not LLMatcher.validate_grammar(f"start: /{expression}/")
