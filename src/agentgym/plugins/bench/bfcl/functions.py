"""Convert the functions of the benchmark to tools, as the benchmark itself does.

The rules are those of ``bfcl_eval`` for models with function calling. Types are
replaced by JSON types. Arguments of Java and JavaScript functions have the JSON type
string, and their descriptions say the original types.
"""

import copy
import json
from collections.abc import Sequence
from typing import Any

from agentgym.core.tools import ToolSpec
from agentgym.plugins.bench.bfcl.entries import Entry
from agentgym.scenarios.schemas import spec_of_openai

_JSON_TYPES = {
    "integer": "integer",
    "number": "number",
    "float": "number",
    "string": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "dict": "object",
    "object": "object",
    "tuple": "array",
    "any": "string",
    "byte": "integer",
    "short": "integer",
    "long": "integer",
    "double": "number",
    "char": "string",
    "ArrayList": "array",
    "Array": "array",
    "HashMap": "object",
    "Hashtable": "object",
    "Queue": "array",
    "Stack": "array",
    "Any": "string",
    "String": "string",
    "Bigint": "integer",
}
_HINTS = {
    "java": " Note that the provided function is in Java 8 SDK syntax.",
    "javascript": " Note that the provided function is in JavaScript syntax.",
    "python": " Note that the provided function is in Python 3 syntax.",
}
_NAMES = {"java": "Java", "javascript": "JavaScript"}


def language_of(category: str) -> str:
    """Return the language of a category: ``python``, ``java`` or ``javascript``."""
    last = category.rpartition("_")[2]
    return last if last in _NAMES else "python"


def tool_name(function: str) -> str:
    """Return the tool name of a function: its name with ``_`` instead of dots."""
    return function.replace(".", "_")


def specs_of(
    entry: Entry, functions: Sequence[dict[str, Any]] | None = None
) -> list[ToolSpec]:
    """Return the specs of tools for the functions of an entry (test case), in order."""
    named = entry.functions if functions is None else functions
    return [spec_of_openai(_tool(f, entry.category)) for f in named]


def _tool(function: dict[str, Any], category: str) -> dict[str, Any]:
    language = language_of(category)
    schema = copy.deepcopy(function["parameters"])
    properties = schema.get("properties", {})
    if language in _NAMES:
        for part in properties.values():
            _as_text(part, _NAMES[language])
    schema["type"] = "object"
    schema["properties"] = {n: _typed(part) for n, part in properties.items()}
    return {
        "name": tool_name(function["name"]),
        "description": function["description"] + _HINTS[language],
        "parameters": schema,
    }


def _as_text(part: dict[str, Any], language: str) -> None:
    """Change a Java or JavaScript argument's type to string, in place."""
    kind = part["type"]
    message = f" This is {language} {kind} type parameter in string representation."
    if kind == "any":
        message = (
            f" This parameter can be of any type of {language} object in string "
            "representation."
        )
    items = part.pop("items", None) if kind in ("ArrayList", "Array", "array") else None
    if items is not None:
        message += (
            f" The list elements are of type {items['type']}; they are not in string "
            "representation."
        )
    if kind == "dict" and "properties" in part:
        message += (
            " The dictionary entries have the following schema; they are not in "
            f"string representation. {json.dumps(part.pop('properties'))}"
        )
    part["description"] = part.get("description", "") + message
    part["type"] = "string"


def _typed(part: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an argument's schema with JSON types."""
    made = dict(part)
    if made.get("type") == "float":
        made["format"] = "float"
        message = made.get("description", "")
        made["description"] = f"{message} This is a float type value."
    made["type"] = _JSON_TYPES.get(made.get("type", ""), "string")
    return _with_inner(made)


def _item(part: dict[str, Any]) -> dict[str, Any]:
    return _with_inner(
        {**part, "type": _JSON_TYPES.get(part.get("type", ""), "string")}
    )


def _with_inner(part: dict[str, Any]) -> dict[str, Any]:
    """Convert the types of a schema's properties or items to JSON types, in place."""
    if part["type"] not in ("array", "object"):
        return part
    if "properties" in part:
        part["properties"] = {n: _typed(p) for n, p in part["properties"].items()}
    elif isinstance(part.get("items"), dict):
        part["items"] = _item(part["items"])
    return part
