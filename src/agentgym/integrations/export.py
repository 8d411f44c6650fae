"""Choose the agent and the tools with which a trained agent is exported."""

from collections.abc import Callable, Sequence
from typing import Any

from agentgym.core.agent import Trained
from agentgym.core.task import Split
from agentgym.core.tools import Tool
from agentgym.errors import ScenarioError, UsageError
from agentgym.integrations.agent_import import load_trained, takes_tools
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.scenario import ToolScenario


def agent_and_tools(
    trained: Trained,
    export: str,
    convert: Callable[[Tool], Any],
    *,
    agent: Any,
    tools: Sequence[Any] | None,
) -> tuple[Any, str, list[Any]]:
    """Return the agent or factory to export, its name for messages, and its tools.

    The agent is ``agent``, or the agent that was trained; None for the scenario's
    default agent. The tools are empty for an agent with its own tools. Otherwise they
    are ``tools``, or the scenario's tools, which ``convert`` converts to tools of the
    framework.
    """
    named = trained.spec.agent if agent is None else agent
    found = None if named is None else load_trained(trained, agent, export)
    origin = named if isinstance(named, str) else type(named).__name__
    if found is None or takes_tools(found):
        if tools is not None:
            return found, origin, list(tools)
        return found, origin, [convert(tool) for tool in _examples(trained, export)]
    if tools is not None:
        raise UsageError(
            f"{origin} has its own tools: leave tools={tools!r} out, or give a "
            "function make_agent(llm, tools) as agent=."
        )
    return found, origin, []


def _examples(trained: Trained, export: str) -> list[Tool]:
    """Return the scenario's tools, bound to the environment of an example task."""
    try:
        scenario = get_scenario(trained.scenario)
    except (UsageError, ScenarioError) as error:
        raise UsageError(
            f"The tools of {trained.spec.scenario!r} cannot be had: {error} Give your "
            f"own with {export}(tools=[...])."
        ) from error
    if isinstance(scenario, ToolScenario):
        raise UsageError(
            f"The tools of {scenario.name!r} are your own, and in training they did "
            f"not run: give them with {export}(tools=[...])."
        )
    if not scenario.tools():
        raise UsageError(
            f"Each task of {scenario.name!r} has tools of its own, so the trained "
            f"agent keeps none: give yours with {export}(tools=[...])."
        )
    [task] = make_tasks(scenario, Split.TEST, seed=0, count=1)
    return scenario.create_environment(task).tools()
