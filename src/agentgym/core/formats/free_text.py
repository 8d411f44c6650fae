"""Separate free text from decisions in an answer that follows a JSON schema.

A field for limited values is a decision, like an argument of a tool. If a schema has
only fields for any text, the agent acts on them, and all count as decisions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym.core.formats.base import read_object
from agentgym.core.json_schema import referred

_DECODER = json.JSONDecoder()
_MOST_DEPTH = 32
_BOUNDED = ("enum", "const", "pattern", "format")
_BRANCHES = ("anyOf", "oneOf", "allOf")


def free_text(
    text: str, span: tuple[int, int], schema: Mapping[str, Any]
) -> list[tuple[int, int]]:
    """Return the offsets of each free text in an answer, its closing quote included."""
    if not _decides(schema, schema, 0):
        return []
    return list(_free(text, span[0], schema, schema, 0))


def _free(
    text: str, at: int, schema: Any, root: Mapping[str, Any], depth: int
) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each free text in the JSON value at offset ``at``."""
    at = _skipped(text, at, " \t\r\n")
    if depth > _MOST_DEPTH or at >= len(text):
        return
    options = list(_options(schema, root, 0))
    if text[at] == '"':
        _, end = _DECODER.raw_decode(text, at)
        if not options or all(map(_is_free, options)):
            yield at + 1, end
    elif text[at] == "{" and (found := read_object(text, at)):
        for name, (_, first, _) in found.fields.items():
            below = [_property(each, name) for each in options]
            yield from _free(text, first, _any_of(below), root, depth + 1)
    elif text[at] == "[":
        items = _any_of([each.get("items") for each in options])
        at = _skipped(text, at + 1, " \t\r\n")
        while at < len(text) and text[at] != "]":
            yield from _free(text, at, items, root, depth + 1)
            _, at = _DECODER.raw_decode(text, at)
            at = _skipped(text, at, ", \t\r\n")


def _skipped(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at


def _options(
    schema: Any, root: Mapping[str, Any], depth: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the alternatives of a schema (``anyOf`` etc.), with ``$ref`` resolved."""
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield from _options(referred(reference, root), root, depth + 1)
        return
    branches = [b for key in _BRANCHES for b in schema.get(key) or ()]
    if not branches or not set(_BOUNDED).isdisjoint(schema):
        yield schema
        return
    for branch in branches:
        yield from _options(branch, root, depth + 1)


def _decides(schema: Any, root: Mapping[str, Any], depth: int) -> bool:
    """Return whether a schema has a field that counts as a decision."""
    if depth > _MOST_DEPTH:
        return False
    for option in _options(schema, root, 0):
        if option.get("type") == "null":
            continue
        properties = option.get("properties")
        if isinstance(properties, Mapping):
            if any(_decides(each, root, depth + 1) for each in properties.values()):
                return True
        elif "items" in option:
            if _decides(option["items"], root, depth + 1):
                return True
        elif option.get("type") != "object" and not _is_free(option):
            return True
    return False


def _is_free(schema: Mapping[str, Any]) -> bool:
    if not set(_BOUNDED).isdisjoint(schema):
        return False
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind or ())
    return kinds <= {"string", "null"}


def _property(schema: Mapping[str, Any], name: str) -> Any:
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return schema.get("additionalProperties") if found is None else found


def _any_of(schemas: Sequence[Any]) -> dict[str, Any]:
    known = [each for each in schemas if isinstance(each, Mapping)]
    return {"anyOf": known} if known else {}
