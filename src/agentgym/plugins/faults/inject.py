"""add_faults: let tools of a scenario fail now and then, as tools in production do.

A fault depends on the task and on the number of the call, and on nothing else. So all
attempts at a task meet the same faults, and their rewards can be compared.
"""

import inspect
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.tools import (
    Injected,
    Tool,
    ToolOutcome,
    parse_arguments,
    pending_run,
    result_text,
)
from agentgym.plugins.faults.group import FaultSettings
from agentgym.scenarios.base import Environment, Scenario

# Name of the set of held-out tasks whose tools fail now and then.
WITH_FAULTS = "with faults"
# End of the id of a task whose tools fail now and then.
MARK = "+faults"
_OF_TASKS = ("calculate_reward", "needed_calls", "judge_changes")
_TEXTS = {
    "timeout": "Error: the tool did not answer in time.",
    "error": "Error: 503 Service Unavailable, try again later.",
}


def add_faults(
    scenario: Scenario, settings: Mapping[str, Any], *, trains: bool
) -> None:
    """Change a scenario: tasks whose id ends with :data:`MARK` have faults.

    There is a set of such tasks next to the held-out tasks. With ``trains``, tasks for
    training and validation are such tasks, too.
    """
    rates = FaultSettings.model_validate(settings).rates
    if not any(rates.values()):
        return
    create, tasks = scenario.create_environment, scenario.tasks
    own = vars(scenario)  # attributes of the object, which hide the class's methods

    def create_environment(task: Task) -> Environment:
        environment = create(_bare(task))
        if task.id.endswith(MARK):
            vars(environment)["altered"] = Faults(rates, _bare(task)).wrap
        return environment

    def marked_tasks(split: Split, *rest: Any, **more: Any) -> list[Task]:
        made = tasks(split, *rest, **more)
        held_out = split not in (Split.TRAIN, Split.VALIDATION)
        return made if held_out else list(map(_marked, made))

    own["create_environment"] = create_environment
    own["variants"] = lambda made: {WITH_FAULTS: list(map(_marked, made))}
    if trains:
        own["tasks"] = marked_tasks
    for name in _OF_TASKS:
        own[name] = _on_bare_task(getattr(scenario, name))


def _marked(task: Task) -> Task:
    return task.model_copy(update={"id": f"{task.id}{MARK}"})


def _bare(task: Task) -> Task:
    return task.model_copy(update={"id": task.id.removesuffix(MARK)})


def _on_bare_task(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda task, *rest: method(_bare(task), *rest)


class Faults:
    """Decides which calls of one episode meet a fault."""

    def __init__(self, rates: Mapping[str, float], task: Task) -> None:
        self._rates = rates
        self._task = task
        self._calls = 0
        self._results: dict[str, str] = {}

    def wrap(self, tool: Tool) -> Tool:
        """Return a tool that fails now and then."""

        async def run(**arguments: Any) -> str:
            return await self._run(tool, arguments)

        return replace(tool, function=run)

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> str:
        kind = self._next()
        if kind in _TEXTS:
            return Injected(_TEXTS[kind], kind, ToolOutcome.RAISED)
        key = json.dumps([tool.spec.name, arguments], sort_keys=True, default=str)
        if kind == "stale" and key in self._results:
            return Injected(self._results[key], kind, ToolOutcome.OK)
        result = tool.function(**arguments)
        text = result_text(await result if inspect.isawaitable(result) else result)
        self._results.setdefault(key, text)
        # A tool that runs in its framework's code returns its own result.
        is_in_place = pending_run(tool.spec.name) is not None
        if kind == "renamed" and not is_in_place and (renamed := rename(text)):
            return Injected(renamed, kind, ToolOutcome.OK)
        return text

    def _next(self) -> str:
        """Return the kind of fault of the next call; "" for none."""
        self._calls += 1
        key = f"{self._task.seed}/{self._task.id}/{self._calls}"
        drawn = random.Random(key).random()
        for kind, share in self._rates.items():
            drawn -= share
            if drawn < 0:
                return kind
        return ""


def rename(result: str) -> str:
    """Return a JSON object with its first field renamed; "" for other results.

    ``order_id`` becomes ``orderId``, and ``status`` becomes ``status_value``.
    """
    found = parse_arguments(result)
    if not found:
        return ""
    first, *rest = found
    new = re.sub(r"_(\w)", lambda at: at[1].upper(), first)
    new = new if new != first else f"{first}_value"
    return json.dumps({new: found[first], **{name: found[name] for name in rest}})
