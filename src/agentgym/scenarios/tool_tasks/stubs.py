"""Make up values from JSON schemas: arguments of tools, and answers of tools."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from agentgym.core.tools import result_text

_MOST_NESTED = 5
_FORMATS = {
    "date": "2025-03-14",
    "date-time": "2025-03-14T09:30:00Z",
    "time": "09:30:00",
    "email": "person@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "duration": "P1D",
}

Schema = Mapping[str, Any]


def example(parameters: Schema, name: str, key: str = "") -> Any:
    """Return an example value for a tool's argument.

    Args:
        parameters: The JSON schema of the tool's arguments.
        name: Name of the argument. If the schema does not have it, the value is text.
        key: A seed. Different seeds give different values if the type allows that.
    """
    schema = parameters.get("properties", {}).get(name, {})
    return _value(schema, parameters.get("$defs", {}), name, {}, key or name, 0)


def returns(function: Callable[..., Any]) -> Schema | None:
    """Return the JSON schema of a function's result; None for text or an unknown type.

    It is made from the function's return annotation.
    """
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
    """Return a made-up answer to a tool call; equal calls get the same answer.

    Args:
        tool: The tool's name.
        schema: JSON schema of the tool's result; None for a result that is text.
        arguments: The call's arguments, which are JSON values.
        facts: Values, by name, that the answer must contain.
    """
    if schema is None:
        text = "".join(f" {name}: {result_text(v)}." for name, v in facts.items())
        return f"{tool}: done.{text}"
    key = json.dumps([tool, arguments], sort_keys=True, default=str)
    known = {**arguments, **facts}
    made = _value(schema, schema.get("$defs", {}), "", known, key, 0)
    written = result_text(made)
    missing = {n: v for n, v in facts.items() if result_text(v) not in written}
    if not missing:
        return written
    if isinstance(made, dict):
        return result_text({**made, **missing})
    return " ".join([written, *(f"{n}: {result_text(v)}." for n, v in missing.items())])


def _value(
    schema: Schema, defs: Schema, name: str, known: Schema, key: str, depth: int
) -> Any:
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if depth and name in known and _fits(known[name], schema):
        return known[name]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][_number(key, len(schema["enum"]))]
    options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if options:
        return _value(options[0], defs, name, known, key, depth)
    inner = f"{key}/{name}"
    match schema.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return _within(schema, inner)
        case "array":
            if depth >= _MOST_NESTED:
                return []
            item = schema.get("items", {})
            count = max(1, schema.get("minItems", 1))
            return [
                _value(item, defs, name, known, f"{inner}{n}", depth + 1)
                for n in range(count)
            ]
        case "object":
            if depth >= _MOST_NESTED:
                return {}
            return {
                field: _value(part, defs, field, known, key, depth + 1)
                for field, part in schema.get("properties", {}).items()
            }
        case "null":
            return None
        case _:
            text = str(_FORMATS.get(schema.get("format", ""), ""))
            text = text or f"{name or 'value'}-{1000 + _number(inner, 9000)}"
            short = text[-schema["maxLength"] :] if "maxLength" in schema else text
            return short.ljust(schema.get("minLength", 0), "x")


def _within(schema: Schema, key: str) -> int | float:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 1 if high is None or high > 1 else high - 100
    low += step if "exclusiveMinimum" in schema and "minimum" not in schema else 0
    most = 100 if high is None else max(1, int((high - low) / step))
    made: int | float = low + step * _number(key, most)
    return made


def _fits(value: Any, schema: Schema) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    kind = kinds.get(schema.get("type", ""), object)
    return isinstance(value, kind) and value in schema.get("enum", [value])


def _number(key: str, below: int) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) % max(1, below)
