"""Convert the JSON schema of a tool's arguments to a pydantic model."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from agentgym.core.json_schema import JsonSchema, SchemaArguments, resolved
from agentgym.core.tools import ToolSpec, name_fault
from agentgym.errors import UnsupportedError, message_of

_BESIDE = {"allOf", "anyOf", "oneOf", "if", "dependentSchemas", "unevaluatedProperties"}
"""Keywords by which a schema of arguments may name more of them."""


def spec_of_openai(tool: Any) -> ToolSpec:
    """Convert a tool in OpenAI's JSON format, or its ``function``, to a `ToolSpec`."""
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError(
            'it is not {"type": "function", "function": {"name": …, "description": …, '
            '"parameters": {a JSON schema}}}'
        )
    name: Any = function.get("name")
    text = function.get("description") or ""
    if fault := name_fault(name):
        raise ValueError(f"its name is {name!r}: {fault}")
    schema = function.get("parameters") or {}
    objects = ("object", ["object"])
    if not isinstance(schema, Mapping) or schema.get("type", "object") not in objects:
        raise ValueError(
            f"the parameters of {name!r} are not a JSON schema of an object, "
            '{"type": "object", "properties": {…}, "required": […]}'
        )
    whole = {"type": "object", **schema}
    try:
        JsonSchema(whole).check()
    except SchemaError as error:
        wrong = f"{'.'.join(map(str, error.path))}: {error.message}"
        raise ValueError(
            f"the parameters of {name!r} are not a JSON schema: {wrong}"
        ) from None
    except Unresolvable as error:
        raise ValueError(
            f"the parameters of {name!r} refer to {error.ref!r}, which is not in them; "
            "nothing is fetched"
        ) from None
    return ToolSpec(name, str(text), model_of_schema(name, whole))


def spec_of_model(name: str, description: str, model: type[BaseModel]) -> ToolSpec:
    """Return a `ToolSpec` from a pydantic model, which refuses unknown arguments."""
    body = {
        "__module__": __name__,
        "__doc__": model.__doc__,
        "model_config": ConfigDict(extra="forbid", allow_inf_nan=False),
    }
    meta: Any = type(model)
    try:
        spec = ToolSpec(name, description, meta(model.__name__, (model,), body))
        assert spec.parameters is not None
    except Exception as error:
        raise UnsupportedError(
            f"The tool {name!r} cannot be described to a model: "
            f"{message_of(error)}. Give all of its arguments types that JSON can hold."
        ) from error
    return spec


def model_of_schema(
    name: str,
    schema: dict[str, Any],
    read: Callable[[dict[str, Any]], Any] | None = None,
) -> type[BaseModel]:
    """Return a pydantic model that validates arguments by a JSON schema.

    ``read`` is the framework's own validation, which fills in defaults that a schema
    cannot show.
    """
    wording = {"type": "object", "properties": {}, **resolved(schema, schema)}
    judge = JsonSchema(wording)
    named = wording["properties"]
    more = "propertyNames" in wording or wording.get("minProperties", 0) > len(named)
    if not more and named.keys() >= set(wording.get("required", ())):
        if not _BESIDE & wording.keys():
            wording = {"additionalProperties": False, **wording}
        judge = JsonSchema({"unevaluatedProperties": False, **wording})

    class Arguments(SchemaArguments):
        json_schema = judge

        @model_validator(mode="before")
        @classmethod
        def _check(cls, given: Any) -> Any:
            if (problem := judge.best_error(given)) is not None:
                where = ".".join(map(str, problem.path))
                said = str(problem.message)
                raise ValueError(f"{where}: {said}" if where else said)
            return given

        @classmethod
        def as_read(cls, arguments: dict[str, Any]) -> dict[str, Any]:
            found = super().as_read(arguments)
            try:
                made = found if read is None else read(found)
                return made if isinstance(made, dict) else dict(iter(made))
            except Exception:  # noqa: BLE001 - a user's validator may raise anything
                return found

        @classmethod
        def model_json_schema(cls, *args: Any, **named: Any) -> dict[str, Any]:
            return wording

    Arguments.__name__ = name
    return Arguments
