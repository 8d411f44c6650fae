"""Read prompts, tools and clients of Agent Framework's agents and workflows."""

from typing import Any

from agent_framework import Agent, BaseChatClient, Content, FunctionTool, Workflow

from agentgym.core.background import in_background
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, message_of
from agentgym.integrations.base import AgentRole
from agentgym.integrations.on_client.adapter import left_out
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.plugins.agent_framework.copies import parts_of
from agentgym.plugins.agent_framework.redirect import agents_of, passes_on
from agentgym.scenarios.schemas import distinct, model_of_schema

AGENTS, TOOLS, MODEL = (Agent, Workflow), FunctionTool, BaseChatClient


def members(found: Any) -> list[Any]:
    """Return an agent, or a workflow's agents, and the agents that their tools run."""
    agents = [found] if isinstance(found, Agent) else parts_of(found, Agent)
    if not agents:
        raise UnsupportedError(f"{found!r} has no agent.")
    for agent in agents:  # grows
        tools = agent.default_options.get("tools") or ()
        for tool in (each for each in tools if isinstance(each, FunctionTool)):
            agents += [a for a in agents_of(tool) if all(a is not x for x in agents)]
    return agents


def roles(found: Any) -> list[AgentRole]:
    """Return a description of the agent, or of each agent in the workflow."""
    return [
        AgentRole(
            name=agent.name or DEFAULT_AGENT,
            system_prompt=agent.default_options.get("instructions"),
            tools=[_spec(tool) for tool in _functions(agent)],
            model=agent.client,
            answers=_answers(agent),
        )
        for agent in members(found)
    ]


def own_tools(found: Any) -> list[Tool]:
    """Convert the tools of an agent or workflow, or one tool, to AgentGym tools.

    Tools that run another agent, or hand over to another agent, are left out.
    """
    if isinstance(found, FunctionTool):
        return [_own_tool(found)]
    return distinct(
        _own_tool(tool)
        for agent in members(found)
        for tool in _functions(agent)
        if not passes_on(tool)
    )


def concerns(found: Any) -> list[str]:
    """Return a warning for each tool that a provider's servers run.

    Such tools are left out in training.
    """
    return [
        left_out(_named(tool), agent.name or DEFAULT_AGENT)
        for agent in members(found)
        for tool in agent.default_options.get("tools") or ()
        if not isinstance(tool, FunctionTool)
    ]


def _named(tool: Any) -> str:
    return str(tool.get("type")) if isinstance(tool, dict) else type(tool).__name__


def _answers(agent: Any) -> tuple[str, ...]:
    form = agent.default_options.get("response_format")
    return (form.__name__,) if isinstance(form, type) else ()


def _functions(agent: Any) -> list[FunctionTool]:
    """Return an agent's function tools, including those of its MCP servers."""
    tools = agent.default_options.get("tools") or ()
    own = [tool for tool in tools if isinstance(tool, FunctionTool)]
    return own + [tool for each in agent.mcp_tools for tool in _of_server(each, agent)]


def _of_server(server: Any, agent: Any) -> list[FunctionTool]:
    async def listed() -> list[FunctionTool]:
        async with server:  # close it: episodes use another event loop
            return list(server.functions)

    if server.functions:  # listed before
        return list(server.functions)
    try:
        return in_background(listed())
    except Exception as error:  # the server's own exception
        cause = error.__cause__ or error  # the framework wraps it
        older = isinstance(cause, ImportError)
        remedy = " Agent Framework needs mcp 2.2 or later." if older else ""
        raise UnsupportedError(
            f"The MCP server {server.name} of {agent.name or DEFAULT_AGENT} cannot be "
            f"asked for its tools: {type(cause).__name__}: {message_of(cause)}.{remedy}"
        ) from error


def _spec(tool: FunctionTool) -> ToolSpec:
    read = None if tool.input_model is None else tool.input_model.model_validate
    arguments = model_of_schema(tool.name, dict(tool.parameters()), read)
    return ToolSpec(tool.name, tool.description, arguments)


def _own_tool(tool: FunctionTool) -> Tool:
    async def run(arguments: dict[str, Any]) -> Any:
        contents: list[Content] = await tool.invoke(arguments=arguments)
        return "\n".join(each.text or "" for each in contents if each.type == "text")

    return live_tool(_spec(tool), run)
