"""Validate tool calls against the JSON schemas in the model request.

AgentGym knows an agent's own tool, e.g. a hand-off in a team, only by its JSON schema.
Types are checked as in pydantic's lax mode, in which ``"2"`` is a valid integer. The
arguments of the scenario's tools are checked in the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentgym.core.json_schema import JsonSchema
from agentgym.core.tools import ToolOutcome, parse_arguments

Fault = Literal["missing", "extra", "type", "value"]
_KINDS: Mapping[str, Fault] = {
    "required": "missing",
    "additionalProperties": "extra",
    "unevaluatedProperties": "extra",
    "type": "type",
}


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
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    judge = JsonSchema(schema)
    try:
        judge.check()
    except (SchemaError, Unresolvable):
        return []
    return [
        SchemaFault(_KINDS.get(str(e.validator), "value"), f"{e.message:.200}")
        for e in judge.errors(arguments)
    ]
