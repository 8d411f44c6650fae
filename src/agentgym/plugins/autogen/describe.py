"""Classes of AutoGen, the parts of teams, and tools as AgentGym tools.

Most of the inspected attributes are private in AutoGen: a test fails when a new version
changes them.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from autogen_agentchat.agents import CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, StaticWorkbench, Workbench

from agentgym.core.background import in_background
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ToolError
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.integrations.on_client.servers import Servers
from agentgym.plugins.autogen.tools import AutoGenSpecTool
from agentgym.scenarios.schemas import model_of_schema, spec_of_model

_MODEL_SLOTS = ("model_client", "_model_client")
_PARTS = (BaseTool, ChatAgent, Team, Workbench)
AGENTS, TOOLS, MODEL = (ChatAgent, Team), (BaseTool, Workbench), ChatCompletionClient
_NOT_WITHIN = ("_handoff_tools", "_handoffs", "_input_participants")


def parts(agent: Any) -> list[Any]:
    """Return an agent or team, and all agents, teams, tools and workbenches in it.

    Each part is listed once, after the part that contains it. The agent or team that a
    tool runs is a part of that tool.
    """
    found: dict[int, Any] = {}
    waiting = [agent]
    while waiting:
        part = waiting.pop(0)
        if id(part) in found:
            continue
        if isinstance(part, _PARTS):
            found[id(part)] = part
            held = vars(part)
            waiting[:0] = [held[name] for name in held if name not in _NOT_WITHIN]
        elif isinstance(part, dict):
            waiting[:0] = part.values()
        elif isinstance(part, list | tuple):
            waiting[:0] = part
    return list(found.values())


def acts(value: Any) -> bool:
    """Return whether an object is a team, or an agent with tools."""
    benches = getattr(value, "_workbench", None) or ()
    has_tools = any(getattr(bench, "_tools", True) for bench in benches)
    return isinstance(value, Team) or (isinstance(value, ChatAgent) and has_tools)


def notes(agent: Any) -> list[str]:
    """Return notes for the user on how an agent or team behaves in training."""
    found = []
    for part in parts(agent):
        if isinstance(part, UserProxyAgent):
            found.append(f"The scenario's user answers instead of {part.name!r}.")
        if isinstance(part, CodeExecutorAgent):
            kind = type(part._code_executor).__name__
            found.append(f"{part.name!r} really runs the policy's code, by {kind}.")
        for memory in getattr(part, "_memory", None) or ():
            if not isinstance(memory, ListMemory):
                found.append(
                    f"The memory of {part.name!r}, {type(memory).__name__}, is shared "
                    "by all rollouts: each reads the entries of the others."
                )
    return found


def model_of(holder: Any) -> ChatCompletionClient | None:
    """Return the model client of an agent or team; None if there is none."""
    held = [getattr(holder, name, None) for name in _MODEL_SLOTS]
    return next((x for x in held if isinstance(x, ChatCompletionClient)), None)


def tools_of(part: Any) -> list[Tool]:
    """Convert an AutoGen tool, or all tools of a workbench, to AgentGym tools."""
    if isinstance(part, BaseTool):
        return [live_tool(spec_of(part), _running(part), _returned(part))]
    renamed = getattr(part, "_tool_overrides", None)
    if isinstance(part, StaticWorkbench) and not renamed:
        return [tool for each in part._tools for tool in tools_of(each)]
    return [
        live_tool(_spec_of_schema(schema), _calling(part, schema["name"]))
        for schema in in_background(_listed(part))
    ]


async def _listed(bench: Workbench) -> list[Any]:
    if isinstance(bench, StaticWorkbench):
        return list(await bench.list_tools())
    async with bench:  # close servers: episodes use another event loop
        return list(await bench.list_tools())


def _running(tool: BaseTool[Any, Any]) -> Callable[[dict[str, Any]], Awaitable[str]]:
    async def run(arguments: dict[str, Any]) -> str:
        try:
            found = await tool.run_json(arguments, CancellationToken())
        except Exception as error:
            raise ToolError(str(error)) from error  # AutoGen shows it to the model
        return tool.return_value_as_string(found)

    return run


def _calling(bench: Workbench, name: str) -> Callable[[dict[str, Any]], Awaitable[str]]:
    servers = Servers()

    async def run(arguments: dict[str, Any]) -> str:
        await servers.open(bench, bench)
        found = await bench.call_tool(name, arguments, CancellationToken())
        if found.is_error:
            raise ToolError(found.to_text())
        return found.to_text()

    return run


def _returned(tool: BaseTool[Any, Any]) -> Any:
    returned = tool.return_type()
    return None if returned is Any else returned


def spec_of(tool: BaseTool[Any, Any]) -> ToolSpec:
    """Return a tool's schema for a model."""
    if isinstance(tool, AutoGenSpecTool):
        return tool.spec
    return spec_of_model(tool.name, tool.description, tool.args_type())


def _spec_of_schema(schema: Any) -> ToolSpec:
    name = schema["name"]
    parameters = dict(schema.get("parameters", {}))
    return ToolSpec(
        name, schema.get("description", ""), model_of_schema(name, parameters)
    )
