"""Read the task from the input of a rollout."""

from typing import Any

from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.errors import RolloutError, first_problem

_FIELD = "task"


def read_task(given: Any) -> Task:
    """Parse the task in a rollout's input.

    ``given`` is a task or its JSON text; or a row of a data set, whose field ``task``
    has the task or its JSON text. In a data set, JSON text is better: a table of nested
    tasks would add the keys of all tasks to each task.
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
    """Convert a task to a row of a trainer's data set; ``read_task`` parses the row."""
    return {_FIELD: task.model_dump_json()}
