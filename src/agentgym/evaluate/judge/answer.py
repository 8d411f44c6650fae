"""Parse the scores in a judge's answer; refuse an answer without valid scores."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from agentgym.errors import ReplyError, first_problem
from agentgym.models.reply import read_reply

_MOST_WHY = 300


class Score(BaseModel, strict=True, allow_inf_nan=False):
    """A judge's score of an attempt, by its label in the request, with a reason."""

    attempt: Annotated[str, BeforeValidator(str)]
    why: str = ""
    score: float = Field(ge=0, le=1)


class _Scores(BaseModel):
    scores: list[Score]


def response_format(labels: Sequence[str]) -> dict[str, Any]:
    """Return a ``response_format``, for servers that enforce a schema."""
    entry = {
        "type": "object",
        "properties": {
            "attempt": {"type": "string", "enum": sorted(labels, key=int)},
            "why": {"type": "string"},
            "score": {"type": "number"},
        },
        "required": ["attempt", "why", "score"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"scores": {"type": "array", "items": entry}},
        "required": ["scores"],
        "additionalProperties": False,
    }
    named = {"name": "scores", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def read_scores(completion: dict[str, Any], labels: Sequence[str]) -> list[Score]:
    """Return the scores of a completion, in the order of ``labels``.

    Text around the JSON object is ignored, as some servers do not enforce a schema.

    Raises:
        ReplyError: The answer does not have one score from 0 to 1 for each label.
    """
    reply = read_reply(completion)
    text = reply.content
    try:
        found = _Scores.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
    except ValidationError as error:
        raise ReplyError(
            f"it is not an object with scores: {first_problem(error)}"
        ) from None
    by_label = {score.attempt: score for score in found.scores}
    if sorted(score.attempt for score in found.scores) != sorted(labels):
        raise ReplyError(
            f"it scores the attempts {', '.join(by_label) or 'none'}, and was asked "
            f"for {', '.join(sorted(labels, key=int))}"
        )
    return [
        by_label[label].model_copy(update={"why": by_label[label].why[:_MOST_WHY]})
        for label in labels
    ]
