"""Read prompt, tools, output tools and model of a pydantic-ai agent."""

import asyncio
import copy
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import Tool as OwnTool
from pydantic_ai.toolsets import (
    AbstractToolset,
    DynamicToolset,
    FilteredToolset,
    FunctionToolset,
    PreparedToolset,
    WrapperToolset,
)
from pydantic_ai.usage import RunUsage

from agentgym.core.background import in_background
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, message_of
from agentgym.integrations.base import AgentRole
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.plugins.pydantic_ai.redirect import agents_of, functions_of
from agentgym.scenarios.schemas import distinct, model_of_schema

_FAILING = (Exception, asyncio.CancelledError)
"""Exceptions that listing tools may raise. If a server closes the connection, the tasks
that wait for the server are cancelled."""

AGENTS, TOOLS, MODEL = Agent, (OwnTool, AbstractToolset), Model


def members(agent: Any) -> list[Any]:
    """Return an agent, and the agents that the functions of its tools run."""
    found = [agent]
    for each in found:  # grows
        for function in functions_of(each).values():
            found += [a for a in agents_of(function) if all(a is not x for x in found)]
    return found


def concerns(agent: Any) -> list[str]:
    """Return an empty list, because training changes no parts of the agent."""
    return []


def roles(agent: Any) -> list[AgentRole]:
    """Return a description of an agent, and of the agents that its tools run."""
    return [_role(each) for each in members(agent)]


def _role(agent: Any) -> AgentRole:
    written = [*agent._system_prompts, *agent._instructions]
    outputs = agent._output_toolset
    tools = [tool.spec for toolset in agent.toolsets for tool in _tools_of(toolset)]
    answers = [] if outputs is None else _tools_of(outputs)
    return AgentRole(
        name=agent.name or DEFAULT_AGENT,
        system_prompt="\n".join(x for x in written if isinstance(x, str)) or None,
        tools=tools,
        model=agent.model,
        answers=tuple(tool.spec.name for tool in answers),
    )


def own_tools(found: Any) -> list[Tool]:
    """Convert the tools of an agent or toolset, or a single tool, to AgentGym tools."""
    if isinstance(found, OwnTool):
        return _tools_of(FunctionToolset([found]))
    if isinstance(found, AbstractToolset):
        return _tools_of(found)
    return distinct(
        tool
        for agent in members(found)
        for toolset in agent.toolsets
        for tool in _tools_of(toolset)
        if not any(agents_of(functions_of(agent).get(tool.spec.name)))
    )


def servers_of(agent: Any) -> list[Any]:
    """Return the MCP servers of an agent, including those inside other toolsets."""
    return [server for toolset in agent.toolsets for server in _servers_in(toolset)]


def _servers_in(toolset: AbstractToolset[Any]) -> list[Any]:
    mcp = sys.modules.get("pydantic_ai.mcp")  # imported by any code with a server
    parts: list[Any] = []
    toolset.apply(parts.append)
    return [x for x in parts if mcp is not None and isinstance(x, mcp.MCPToolset)]


@asynccontextmanager
async def connected(toolset: AbstractToolset[Any]) -> AsyncIterator[None]:
    """Enter a toolset within the block, and close its MCP servers afterwards.

    Otherwise the clients of these servers would keep the servers alive.
    """
    try:
        async with toolset:
            yield
    finally:
        for server in _servers_in(toolset):
            await server.client.close()


def _tools_of(toolset: AbstractToolset[Any]) -> list[Tool]:
    try:
        return in_background(_listed(toolset))
    except _FAILING as failed:  # the toolset's own code, or a server
        error = failed
    try:  # without functions that need a run's dependencies
        return in_background(_listed(_unprepared(toolset)))
    except _FAILING:
        raise UnsupportedError(
            f"The tools of {toolset.label} cannot be listed before it runs: "
            f"{type(error).__name__}: {message_of(error)}."
        ) from error


async def _listed(toolset: AbstractToolset[Any]) -> list[Tool]:
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    run = await toolset.for_run(context)
    async with connected(run):  # close servers: episodes use another event loop
        step = await run.for_run_step(context)
        found = await step.get_tools(context)
    return [_own_tool(name, step, each, context) for name, each in found.items()]


def _unprepared(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    """Return a copy of a toolset without functions that filter or change its tools.

    Pydantic-ai calls these functions in a run. A toolset that is only created in a run
    is replaced by an empty toolset.
    """
    if isinstance(toolset, FilteredToolset | PreparedToolset):
        return _unprepared(toolset.wrapped)
    if isinstance(toolset, WrapperToolset):
        return replace(toolset, wrapped=_unprepared(toolset.wrapped))
    if isinstance(toolset, DynamicToolset):
        return FunctionToolset()
    if isinstance(toolset, FunctionToolset):
        made = copy.copy(toolset)
        made.tools = {name: copy.copy(tool) for name, tool in made.tools.items()}
        for tool in made.tools.values():
            tool.prepare = None
        return made
    return toolset


def _own_tool(name: str, toolset: Any, tool: Any, context: RunContext[Any]) -> Tool:
    definition = tool.tool_def

    async def run(arguments: dict[str, Any]) -> Any:
        checked = tool.args_validator.validate_python(arguments)
        async with toolset:
            return await toolset.call_tool(name, checked, context, tool)

    schema = dict(definition.parameters_json_schema)
    read = tool.args_validator.validate_python
    arguments = model_of_schema(name, schema, read)
    return live_tool(ToolSpec(name, definition.description or "", arguments), run)
