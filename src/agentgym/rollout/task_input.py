"""Read a rollout's input: a task, also in the form of other trainers."""

from typing import Any

from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.errors import RolloutError, first_problem

_FIELD = "task"


def read_task(given: Any) -> Task:
    """Return the task that a rollout's input holds.

    It is a task, its JSON text, or a row of a data set whose field ``task`` is either.
    Trainers keep data sets as tables, which give every nested task the keys of all
    others; as text it comes through whole.

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
    """Return a task as a row of a trainer's data set, which ``read_task`` reads."""
    return {_FIELD: task.model_dump_json()}
