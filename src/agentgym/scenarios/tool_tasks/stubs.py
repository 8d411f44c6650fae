"""Make up values from JSON schemas: arguments of tools, and answers of tools."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from agentgym.core.json_schema import properties
from agentgym.core.made_up import NoValueError, made_up
from agentgym.core.tools import Tool, pending_function, result_text

Schema = Mapping[str, Any]


def example(parameters: Schema, name: str, key: str = "") -> Any:
    """Return an example value for a tool's argument."""
    part = properties(parameters).get(name, {})
    shared = {k: parameters[k] for k in parameters if k != "properties"}
    one = {**shared, "properties": {name: part}, "required": [name]}
    for keyword in ("allOf", "anyOf", "oneOf", "if", "$ref", "dependentRequired"):
        one.pop(keyword, None)
    return made_up(one, key or name)[name]


def example_arguments(parameters: Schema, key: str = "") -> dict[str, Any]:
    """Return example values for the required arguments of a tool."""
    made: dict[str, Any] = made_up(parameters, key)
    return made


def result_schema(tool: Tool) -> Schema | None:
    """Return the JSON schema of a tool's results; None for text or unknown."""
    return returns(pending_function(tool.spec.name) or tool.function)


@lru_cache(maxsize=1024)
def returns(function: Callable[..., Any]) -> Schema | None:
    """Return the JSON schema of a function's result; None for text or unknown."""
    try:
        hint = get_type_hints(function).get("return")
        if hint in (None, str, Any, type(None)):
            return None
        return TypeAdapter(hint).json_schema(mode="serialization")
    except Exception:  # noqa: BLE001 - no annotation, or one that has no schema
        return None


def stub_answer(
    tool: str, schema: Schema | None, arguments: Schema, facts: Schema
) -> str:
    """Return a made-up answer to a tool call; equal calls get the same answer."""
    if schema is None:
        text = "".join(f" {name}: {result_text(v)}." for name, v in facts.items())
        return f"{tool}: done.{text}"
    key = json.dumps([tool, arguments], sort_keys=True, default=str)
    known = {**arguments, **facts}
    try:
        made = made_up(schema, key, optional=1.0, known=known)
    except NoValueError:
        return stub_answer(tool, None, arguments, facts)
    written = result_text(made)
    missing = {n: v for n, v in facts.items() if result_text(v) not in written}
    if not missing:
        return written
    if isinstance(made, dict):
        return result_text({**made, **missing})
    return " ".join([written, *(f"{n}: {result_text(v)}." for n, v in missing.items())])
