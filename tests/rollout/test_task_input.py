"""Tasks as rollouts bring them."""

import json
from typing import Any

import pytest

from agentgym.core.task import Split, Task
from agentgym.errors import RolloutError
from agentgym.rollout.record import as_row, read_task

TASK = Task(
    id="t/1",
    split=Split.TRAIN,
    seed=3,
    family="f",
    level=2,
    instruction="Do it.",
    initial_state={"files": {"a.py": "x = 1\n"}},
    goal={"calls": [{"name": "read", "arguments": {"path": "a.py"}}]},
)


@pytest.mark.parametrize(
    "given",
    [
        TASK.model_dump(mode="json"),
        TASK.model_dump_json(),
        {"task": TASK.model_dump(mode="json"), "index": 7},
        {**as_row(TASK), "data_id": "d", "fake_ids": [1]},
    ],
)
def test_a_task_is_found_in_whatever_a_trainer_makes_of_it(given: Any) -> None:
    assert read_task(given) == TASK


def test_a_row_is_text_alone() -> None:
    row = as_row(TASK)
    assert all(isinstance(value, str) for value in row.values())
    assert read_task(json.loads(json.dumps(row))) == TASK


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"question": "?"}, "id: Field required"),
        ({"task": "{"}, "it: Invalid JSON"),
        ("what", "it: Invalid JSON"),
        (None, "it: Input should be"),
        ({"task": {**TASK.model_dump(mode="json"), "level": 9}}, "level: "),
    ],
)
def test_what_is_no_task_says_why(given: Any, told: str) -> None:
    with pytest.raises(RolloutError, match=f"input is not a task: {told}"):
        read_task(given)
