"""Read a rollout's input: a task in our form or in other trainers' forms."""

from typing import Any

from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.errors import RolloutError, first_problem

_FIELD = "task"


def read_task(given: Any) -> Task:
    """Parse the task in a rollout's input.

    It is a task, its JSON text, or a row of a data set whose field ``task`` is either.
    Trainers keep data sets as tables, which give every nested task the keys of all
    others; text avoids that.

    Raises:
        RolloutError: It is none of these; the message names the first problem.
    """
    if isinstance(given, dict) and _FIELD in given:
        given = given[_FIELD]
    try:
        if isinstance(given, str):
            return Task.model_validate_json(given)
        return Task.model_validate(given)
    except ValidationError as error:
        raise RolloutError(
            f"the rollout's input is not a task: {first_problem(error)}"
        ) from None


def as_row(task: Task) -> dict[str, str]:
    """Convert a task to a row of a trainer's data set, for ``read_task``."""
    return {_FIELD: task.model_dump_json()}
