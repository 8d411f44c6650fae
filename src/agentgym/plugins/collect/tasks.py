"""Read tasks for rollouts without training: texts, mappings, JSON Lines files."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentgym.core.files import parse_json
from agentgym.core.task import Split, Task
from agentgym.errors import UsageError, first_problem, unreadable
from agentgym.sandbox.commands import check_files

TaskLike = Task | str | Mapping[str, Any]
"""A task, the user's request as text, or a mapping with ``instruction``.

A mapping may also have other fields of :class:`Task`: ``id``, ``goal`` (for a reward
function), ``initial_state``, ``family``, ``level``, ``seed`` and ``split``.
``initial_state["files"]`` maps paths to texts, and fills the workspace.
"""


def as_tasks(values: Iterable[TaskLike]) -> list[Task]:
    """Convert texts and mappings to tasks, and check the paths of their files."""
    if isinstance(values, str | Mapping):
        raise UsageError(
            f"Give a list of tasks, not {values!r}; read_tasks() reads a file."
        )
    tasks = [_as_task(value, index) for index, value in enumerate(values)]
    for task in tasks:
        files_of(task)
    return tasks


def read_tasks(path: Path) -> list[Task]:
    """Read tasks from a JSON Lines file; each line is a text or an object."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Cannot read tasks from {path}: {unreadable(error)}."
        ) from None
    tasks: list[Task] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            tasks.append(_as_task(parse_json(line), len(tasks)))
        except json.JSONDecodeError as error:
            raise UsageError(
                f"{path}, line {number}, is not JSON ({error.msg}). Write one task a "
                'line: {"instruction": "..."}'
            ) from None
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
    if not tasks:
        raise UsageError(f"{path} holds no task.")
    return tasks


def files_of(task: Task) -> dict[str, str]:
    """Check the paths of a task's initial files; return the files' texts by path."""
    files = task.initial_state.get("files", {})
    if not isinstance(files, dict) or not all(
        isinstance(part, str) for pair in files.items() for part in pair
    ):
        raise UsageError(
            f"Task {task.id!r}: initial_state.files must map paths to texts."
        )
    check_files(files)
    return dict(files)


def _as_task(value: Any, index: int) -> Task:
    if isinstance(value, Task):
        return value
    if isinstance(value, str):
        value = {"instruction": value}
    if not isinstance(value, Mapping):
        raise UsageError(f"Task {index} is {value!r}; give text or a mapping.")
    usual = {"id": f"task-{index:05d}", "split": Split.TEST, "seed": index}
    try:
        return Task.model_validate({**usual, "family": "", "level": 1, **value})
    except ValidationError as error:
        raise UsageError(f"Task {index}: {first_problem(error)}.") from None
