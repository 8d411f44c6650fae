"""JSON schemas that came from elsewhere, as pydantic models of arguments."""

from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import BaseModel, ConfigDict, model_validator


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
