"""What a model call was offered, and calls of tools that the agent brought along.

Such a tool, a hand-off to others of a team for instance, is known only by the JSON
schema that the model was told. Types are checked as pydantic's lax mode does, which
is how the scenario's own tools are: ``"2"`` is an integer.
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
    told: str


def offered_functions(tools: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the functions among OpenAI-shaped tools by name; what is none is left out.

    Args:
        tools: Of a request, as whoever sent it wrote them.
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
    """Judge a call of a tool that the agent brought along, by what was offered.

    Args:
        function: Name and parameters, as the model was told.
        raw_arguments: As the model wrote them.

    Returns:
        The outcome, and what is wrong; empty if nothing is.
    """
    arguments = parse_arguments(raw_arguments)
    if arguments is None:
        return ToolOutcome.MALFORMED, "the arguments are not a JSON object"
    for fault in schema_faults(function.get("parameters"), arguments):
        return ToolOutcome.INVALID_ARGUMENTS, fault.told
    return ToolOutcome.OK, ""


def schema_faults(schema: Any, arguments: Mapping[str, Any]) -> Sequence[SchemaFault]:
    """Return what a JSON schema finds wrong with arguments.

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
