"""Tools of a trained agent's scenario, to try the agent without your own tools."""

from agentgym.core.agent import Trained
from agentgym.core.task import Split
from agentgym.core.tools import Tool
from agentgym.errors import ScenarioError, UsageError
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.scenario import ToolScenario


def example_tools(trained: Trained, export: str) -> list[Tool]:
    """Return the scenario's tools, which act on the environment of an example task.

    Args:
        trained: The trained agent.
        export: Name of the export method, for error messages.

    Raises:
        UsageError: The scenario cannot be loaded any more, or has no tools of its own.
    """
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
