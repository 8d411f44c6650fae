"""Get tasks from a scenario, and check that they are tasks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from agentgym.core.needs import Needs
from agentgym.core.task import EVERY_SPLIT, Split, Task
from agentgym.core.tools import ToolSpec
from agentgym.errors import NotFoundError, ScenarioError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.tool_tasks.unseen import AgentTools

MOST_SEARCHED = 2000
"""Number of a scenario's tasks that are searched for an id."""


def make_tasks(scenario: Scenario, split: Split, seed: int, count: int) -> list[Task]:
    """Return at least one and at most ``count`` tasks of a split."""
    made = scenario.tasks(split, seed, count)
    return task_list(made, f"tasks({split.value}) of {scenario.name}")[:count]


def tasks_to_measure(
    scenario: Scenario, split: str, seed: int, count: int
) -> list[Task]:
    """Return up to ``count`` tasks of a split; of all splits, by family in turn."""
    if split != EVERY_SPLIT:
        return make_tasks(scenario, Split(split), seed, count)
    every = [t for s in scenario.splits for t in make_tasks(scenario, s, seed, count)]
    before: Counter[str] = Counter()
    turns = []
    for task in every:
        turns.append(before[task.family])
        before[task.family] += 1
    in_turn = sorted(range(len(every)), key=lambda place: turns[place])
    return [every[place] for place in in_turn[:count]]


def with_id(tasks: Sequence[Task], task_id: str) -> Task:
    """Return the task whose id is ``task_id``."""
    for task in tasks:
        if task.id == task_id:
            return task
    raise NotFoundError("task", task_id, [task.id for task in tasks[:10]])


def needs_of(scenario: Scenario, tasks: Iterable[Task]) -> Needs:
    """Return the tool calls that the tasks need, and the specs of their tools."""
    tasks = list(tasks)
    by_task = {task.id: scenario.needed_calls(task) for task in tasks}
    kind = AgentTools if scenario.has_late_tools else dict
    if (usual := scenario.tools()) or scenario.has_late_tools:
        return Needs(by_task, kind({spec.name: spec for spec in usual}))
    tools = {
        task.id: {spec.name: spec for spec in tools_of(scenario, task)}
        for task in tasks
    }
    every = {name: spec for specs in tools.values() for name, spec in specs.items()}
    return Needs(by_task, every, tools)


def tools_of(scenario: Scenario, task: Task) -> list[ToolSpec]:
    """Return the specs of the tools in a task's environment."""
    environment = scenario.create_environment(task)
    try:
        return [tool.spec for tool in environment.tools()]
    finally:
        environment.close()


def usual_tools(scenario: Scenario, seed: int) -> list[ToolSpec]:
    """Return the specs of the scenario's tools, or else those of one training task."""
    tools = scenario.tools()
    return tools or tools_of(scenario, make_tasks(scenario, Split.TRAIN, seed, 1)[0])


def held_out_sets(scenario: Scenario, seed: int, count: int) -> dict[str, list[Task]]:
    """Return the sets of tasks from :meth:`Scenario.held_out`, the main set first."""
    sets = scenario.held_out(seed, count)
    if not sets:
        raise ScenarioError(f"held_out() of {scenario.name} gives no set of tasks.")
    found = {
        name: task_list(made, f"Held-out set {name!r} of {scenario.name}")
        for name, made in sets.items()
    }
    return found | scenario.variants(next(iter(found.values())))


def held_out_count(scenario: Scenario, seed: int, count: int) -> int:
    """Return the number of tasks in all sets of :func:`held_out_sets`."""
    return sum(map(len, held_out_sets(scenario, seed, count).values()))


def task_list(made: Any, what: str) -> list[Task]:
    """Check that a scenario's method returned only tasks, and return them as a list."""
    try:
        tasks = list(made)
    except TypeError:
        raise ScenarioError(
            f"{what} is {made!r}, which is not a list of tasks."
        ) from None
    if not tasks:
        raise ScenarioError(f"{what} is empty; there must be a task at least.")
    for task in tasks:
        if not isinstance(task, Task):
            raise ScenarioError(
                f"{what} holds {task!r}, which is not an agentgym.Task."
            )
    return tasks
