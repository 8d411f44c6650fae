"""Classes of pydantic-ai, its tools as AgentGym tools, and its MCP servers."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import Tool as OwnTool
from pydantic_ai.toolsets import (
    AbstractToolset,
    FunctionToolset,
)
from pydantic_ai.usage import RunUsage

from agentgym.core.background import in_background
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, message_of
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.scenarios.schemas import model_of_schema

_FAILING = (Exception, asyncio.CancelledError)
"""Exceptions that listing tools may raise. If a server closes the connection, the tasks
that wait for the server are cancelled."""

AGENTS, TOOLS, MODEL = Agent, (OwnTool, AbstractToolset), Model


def acts(value: Any) -> bool:
    """Return whether an object is an agent whose tools are functions."""
    if not isinstance(value, Agent):
        return False
    return any(getattr(toolset, "tools", None) for toolset in value.toolsets)


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


def tools_of(found: Any) -> list[Tool]:
    """Convert a toolset, or a single tool, to AgentGym tools."""
    toolset = FunctionToolset([found]) if isinstance(found, OwnTool) else found
    try:
        return in_background(_listed(toolset))
    except _FAILING as error:  # the toolset's own code, or a server
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
