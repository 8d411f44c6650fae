"""JSON schemas that came from elsewhere, as pydantic models of arguments."""

from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import BaseModel, ConfigDict, model_validator

from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError, told_by


def spec_of_model(name: str, description: str, model: type[BaseModel]) -> ToolSpec:
    """Return what a model is told of a tool; arguments it does not name are refused.

    Raises:
        UnsupportedError: Its arguments have no JSON schema.
    """
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
            f"The tool {name!r} cannot be told to a model: "
            f"{told_by(error)}. Give all of its arguments types that JSON can hold."
        ) from error
    return spec


def model_of_schema(name: str, schema: dict[str, Any]) -> type[BaseModel]:
    """Return a model whose JSON schema is ``schema`` and that checks as it says.

    An argument that the schema does not name is refused, unless it says otherwise.
    """
    told = {"type": "object", "additionalProperties": False, **schema}
    judge = Draft202012Validator(told)

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def _check(cls, given: Any) -> Any:
            if (problem := best_match(judge.iter_errors(given))) is not None:
                where = ".".join(map(str, problem.path))
                said = str(problem.message)
                raise ValueError(f"{where}: {said}" if where else said)
            return given

        @classmethod
        def model_json_schema(cls, *args: Any, **named: Any) -> dict[str, Any]:
            return told

    Arguments.__name__ = name
    return Arguments
