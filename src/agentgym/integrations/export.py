"""Choose the agent, the tools and the model with which a trained agent is exported."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from agentgym.core.agent import Trained
from agentgym.core.task import Split
from agentgym.core.tools import Tool
from agentgym.errors import ScenarioError, UsageError
from agentgym.integrations.agent_import import load_trained, takes_tools
from agentgym.models.reference import served_name
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.scenario import ToolScenario


@dataclass(frozen=True)
class TrainedEndpoint:
    """The place where OpenAI's clients ask a trained model.

    Attributes:
        model: The model's name in requests.
        temperature: Temperature of requests that do not set it.
        max_tokens: Token limit of requests that do not set it.
        transport: Answers all requests in this process; None if a server answers.
        base_url: Address of the server.
        api_key: Key of the server.
    """

    model: str
    temperature: float
    max_tokens: int
    transport: Any = None
    base_url: str = "http://policy.invalid/v1"
    api_key: str = "none"

    @classmethod
    def of(cls, trained: Trained, base_url: str | None, api_key: str | None) -> Self:
        """Return the server at ``base_url``; if None, load the weights here.

        The sampling options are those with which the agent was evaluated.
        """
        spec = trained.spec
        name, usual = spec.served_name, (spec.temperature, spec.max_tokens)
        if base_url is None:
            return cls(name, *usual, trained.transport())
        name = served_name(base_url, api_key, name)
        return cls(name, *usual, None, base_url, api_key or "none")

    def http(self) -> httpx.AsyncClient | None:
        """Return an HTTP client of the model in this process; None for a server."""
        if self.transport is None:
            return None
        return httpx.AsyncClient(transport=self.transport, timeout=None)

    def sync_http(self) -> httpx.Client | None:
        """Return the sync version of :meth:`http`."""
        if self.transport is None:
            return None
        return httpx.Client(transport=self.transport, timeout=None)


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
