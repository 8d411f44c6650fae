"""Validate tool calls against the JSON schemas in the model request.

AgentGym knows an agent's own tool, e.g. a hand-off in a team, only by its JSON schema.
Types are checked as in pydantic's lax mode, in which ``"2"`` is a valid integer. The
arguments of the scenario's tools are checked in the same way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from agentgym.core.tools import ToolOutcome, parse_arguments

Fault = Literal["missing", "extra", "type", "value"]
_KINDS: Mapping[str, Fault] = {
    "required": "missing",
    "additionalProperties": "extra",
    "type": "type",
}
_CONVERTED = {"integer": int, "number": float, "boolean": bool}


@dataclass(frozen=True)
class SchemaFault:
    """An error in the arguments of a tool call.

    Attributes:
        kind: Category of the error.
        text: Error message.
    """

    kind: Fault
    text: str


def offered_functions(tools: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the function definitions in the OpenAI tools of a request, by name."""
    found = (tool.get("function") for tool in tools if isinstance(tool, Mapping))
    return {
        function["name"]: function
        for function in found
        if isinstance(function, Mapping) and isinstance(function.get("name"), str)
    }


def check_offered(
    function: Mapping[str, Any], raw_arguments: str
) -> tuple[ToolOutcome, str]:
    """Validate a call of an agent's own tool against the tool's JSON schema.

    Return the outcome and an error message, which is empty for a valid call.
    """
    arguments = parse_arguments(raw_arguments)
    if arguments is None:
        return ToolOutcome.MALFORMED, "the arguments are not a JSON object"
    for fault in schema_faults(function.get("parameters"), arguments):
        return ToolOutcome.INVALID_ARGUMENTS, fault.text
    return ToolOutcome.OK, ""


def schema_faults(schema: Any, arguments: Mapping[str, Any]) -> Sequence[SchemaFault]:
    """Validate arguments against a JSON schema; return the errors.

    The result is empty for an invalid schema. It is also empty for a schema with
    external references, because they are not fetched.
    """
    if not isinstance(schema, Mapping):
        return []
    from jsonschema.exceptions import SchemaError, UnknownType
    from jsonschema.validators import Draft202012Validator, extend
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    lax = extend(Draft202012Validator, {"type": _lax_type})
    try:
        lax.check_schema(schema)
        found = lax(schema, registry=Registry()).iter_errors(arguments)
        return [
            SchemaFault(_KINDS.get(str(e.validator), "value"), f"{e.message:.200}")
            for e in found
        ]
    except (SchemaError, UnknownType, Unresolvable, RecursionError):
        return []


def _lax_type(
    validator: Any, types: Any, instance: Any, schema: Any
) -> Iterator[Exception]:
    from jsonschema.exceptions import ValidationError as Mismatch

    named = [types] if isinstance(types, str) else types
    is_one = any(validator.is_type(instance, name) for name in named)
    if not is_one and not any(_converts(instance, name) for name in named):
        yield Mismatch(f"{instance!r} is not of type {' or '.join(named)}")


def _converts(value: Any, name: str) -> bool:
    if name not in _CONVERTED:
        return False
    try:
        TypeAdapter(_CONVERTED[name]).validate_python(value)
    except ValidationError:
        return False
    return True
