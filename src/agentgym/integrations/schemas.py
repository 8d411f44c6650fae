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

    def check(cls: Any, given: Any) -> Any:
        if (problem := best_match(judge.iter_errors(given))) is not None:
            where = ".".join(map(str, problem.path))
            raise ValueError(f"{where}: {problem.message}" if where else problem.message)
        return given

    def json_schema(cls: Any, *args: Any, **named: Any) -> dict[str, Any]:
        return told

    body = {
        "__module__": __name__,
        "__annotations__": {},
        "model_config": ConfigDict(extra="allow"),
        "check": model_validator(mode="before")(classmethod(check)),
        "model_json_schema": classmethod(json_schema),
    }
    return type(BaseModel)(name, (BaseModel,), body)
