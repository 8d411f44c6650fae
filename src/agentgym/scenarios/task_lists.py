"""Asking a scenario for tasks, and refusing what nothing can be attempted with."""

from collections.abc import Iterable
from typing import Any

from agentgym.core.needs import Needs
from agentgym.core.task import Split, Task
from agentgym.errors import ScenarioError
from agentgym.scenarios.base import Scenario


def make_tasks(scenario: Scenario, split: Split, seed: int, count: int) -> list[Task]:
    """Return at most ``count`` tasks; fewer, but one at least, if it has no more.

    Raises:
        ScenarioError: There are none, or they are no tasks.
    """
    made = scenario.tasks(split, seed, count)
    return task_list(made, f"tasks({split.value}) of {scenario.name}")[:count]


def needs_of(scenario: Scenario, tasks: Iterable[Task]) -> Needs:
    """Return which calls tasks need, as far as the scenario says."""
    by_task = {task.id: scenario.needed_calls(task) for task in tasks}
    return Needs(by_task, {spec.name: spec for spec in scenario.tools()})


def held_out_sets(scenario: Scenario, seed: int, count: int) -> dict[str, list[Task]]:
    """Return the task sets of the before/after table, the main one first.

    Raises:
        ScenarioError: There are none, or a set holds no tasks.
    """
    sets = scenario.held_out(seed, count)
    if not sets:
        raise ScenarioError(f"held_out() of {scenario.name} gives no set of tasks.")
    return {
        name: task_list(made, f"Held-out set {name!r} of {scenario.name}")
        for name, made in sets.items()
    }


def task_list(made: Any, what: str) -> list[Task]:
    """Return what a scenario gave as a list with tasks.

    Args:
        made: What it gave.
        what: What that is meant to be, for messages.

    Raises:
        ScenarioError: It holds none, or something else.
    """
    try:
        tasks = list(made)
    except TypeError:
        raise ScenarioError(f"{what} is {made!r}, which is no list of tasks.") from None
    if not tasks:
        raise ScenarioError(f"{what} is empty; there must be a task at least.")
    for task in tasks:
        if not isinstance(task, Task):
            raise ScenarioError(f"{what} holds {task!r}, which is no agentgym.Task.")
    return tasks
