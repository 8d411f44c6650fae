"""What the crew's tasks say is told by a task of training."""

from typing import Any


def of_task(task: Any) -> dict[str, str]:
    """Return the inputs of the crew for a task."""
    return {"request": task.instruction}
