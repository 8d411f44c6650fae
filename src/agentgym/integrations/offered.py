"""Judge calls of tools that the agent brought along, by their offered schemas.

Such a tool, a hand-off to others of a team for instance, is known only by the JSON
schema that the model got. Types are checked as pydantic's lax mode does, which is how
the scenario's own tools are: ``"2"`` is an integer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from agentgym.core.tools import ToolOutcome, parse_arguments

Fault = Literal["missing", "extra", "type", "value"]
_KINDS: tuple[tuple[str, Fault], ...] = (
    ("required", "missing"),
    ("additionalProperties", "extra"),
    ("type", "type"),
)
_CONVERTED: tuple[tuple[str, Any], ...] = (
    ("integer", int),
    ("number", float),
    ("boolean", bool),
)


@dataclass(frozen=True)
class SchemaFault:
    """One thing that is wrong with arguments, by the schema, and in words."""

    kind: Fault
    text: str


def offered_functions(tools: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the functions among OpenAI-shaped tools by name; leave out other tools.

    Args:
        tools: Tools of a request, as the client wrote them.
    """
    found = (tool.get("function") for tool in tools if isinstance(tool, Mapping))
    return {
        function["name"]: function
        for function in found
        if isinstance(function, Mapping) and isinstance(function.get("name"), str)
    }


def check_offered(
    function: Mapping[str, Any], raw_arguments: str
) -> tuple[ToolOutcome, str]:
    """Judge a call of a tool that the agent brought along, by its offered schema.

    Args:
        function: Name and parameters, as the model got them.
        raw_arguments: As the model wrote them.

    Returns:
        The outcome, and the fault; empty if there is none.
    """
    arguments = parse_arguments(raw_arguments)
    if arguments is None:
        return ToolOutcome.MALFORMED, "the arguments are not a JSON object"
    for fault in schema_faults(function.get("parameters"), arguments):
        return ToolOutcome.INVALID_ARGUMENTS, fault.text
    return ToolOutcome.OK, ""


def schema_faults(schema: Any, arguments: Mapping[str, Any]) -> Sequence[SchemaFault]:
    """Return the faults of arguments by a JSON schema.

    A schema that is none finds nothing, nor does one that refers to somewhere else:
    nothing is fetched.
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
        return [SchemaFault(_kind(e.validator), f"{e.message:.200}") for e in found]
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
    for known, target in _CONVERTED:
        if known == name:
            try:
                TypeAdapter(target).validate_python(value)
            except ValidationError:
                return False
            return True
    return False


def _kind(validator: Any) -> Fault:
    return next((kind for name, kind in _KINDS if name == validator), "value")
