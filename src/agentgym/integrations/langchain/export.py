"""A trained agent as a compiled LangGraph agent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import Trained
from agentgym.core.background import in_background
from agentgym.core.task import Split
from agentgym.core.tools import Tool
from agentgym.errors import ScenarioError, ToolError, UsageError
from agentgym.integrations.langchain.adapter import (
    LangChainAdapter,
    most_steps,
    require_graph,
)
from agentgym.integrations.registry import load_factory
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langgraph.graph.state import CompiledStateGraph


def export(
    trained: Trained,
    *,
    tools: Sequence[Any] | None,
    base_url: str | None,
    api_key: str | None,
) -> "CompiledStateGraph[Any, Any, Any, Any]":
    """Build the agent; see ``TrainedAgent.to_langchain``."""
    LangChainAdapter().check()
    from langchain.agents import create_agent

    from agentgym.integrations.langchain.turns import TurnLimit

    model = _model(trained, base_url, api_key)
    offered = _example_tools(trained) if tools is None else list(tools)
    spec = trained.spec
    if spec.agent is None:
        graph: CompiledStateGraph[Any, Any, Any, Any] = create_agent(
            model=model,
            tools=offered,
            system_prompt=spec.system_prompt,
            name=spec.scenario,
        )
    else:
        graph = load_factory(spec.agent)(model, offered)
        require_graph(graph, spec.agent)
    return graph.with_config(
        recursion_limit=most_steps(graph, spec.max_turns),
        callbacks=[TurnLimit(spec.max_turns)],
    )


def _model(trained: Trained, base_url: str | None, api_key: str | None) -> Any:
    if base_url is None:
        from agentgym.integrations.langchain.model import PolicyChatModel

        return PolicyChatModel.of(trained)
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model=trained.spec.scenario,
        base_url=base_url,
        api_key=lambda: api_key or "none",
        temperature=trained.spec.temperature,
        max_completion_tokens=trained.spec.max_tokens,
    )


def _example_tools(trained: Trained) -> "list[BaseTool]":
    """Return the scenario's tools on one held-out task's fresh environment."""
    try:
        scenario = get_scenario(trained.scenario)
    except (UsageError, ScenarioError) as error:
        raise UsageError(
            f"The tools of {trained.spec.scenario!r} cannot be had: {error} Give your "
            "own with to_langchain(tools=[...])."
        ) from error
    [task] = make_tasks(scenario, Split.TEST, seed=0, count=1)
    return [bound_tool(tool) for tool in scenario.create_environment(task).tools()]


def bound_tool(tool: Tool) -> "BaseTool":
    """Return a bound tool as a LangChain tool, for sync and async agents."""
    from langchain_core.tools import StructuredTool

    async def call(**arguments: Any) -> str:
        try:
            return await tool(**arguments)
        except ToolError as error:
            return f"Error: {error}"

    def call_sync(**arguments: Any) -> str:
        return in_background(call(**arguments))

    return StructuredTool(
        name=tool.spec.name,
        description=tool.spec.description,
        args_schema=tool.spec.args_model,
        func=call_sync,
        coroutine=call,
    )
