"""Classes of Agent Framework, and its tools as AgentGym tools."""

from typing import Any

from agent_framework import Agent, BaseChatClient, Content, FunctionTool, Workflow

from agentgym.core.tools import Tool, ToolSpec
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.scenarios.schemas import model_of_schema

AGENTS, TOOLS, MODEL = (Agent, Workflow), FunctionTool, BaseChatClient


def acts(value: Any) -> bool:
    """Return whether an object is an agent with tools, or a workflow."""
    if isinstance(value, Workflow):
        return True
    is_agent = isinstance(value, Agent)
    return is_agent and bool(value.default_options.get("tools") or value.mcp_tools)


def _spec(tool: FunctionTool) -> ToolSpec:
    read = None if tool.input_model is None else tool.input_model.model_validate
    arguments = model_of_schema(tool.name, dict(tool.parameters()), read)
    return ToolSpec(tool.name, tool.description, arguments)


def tools_of(tool: FunctionTool) -> list[Tool]:
    """Convert a tool to an AgentGym tool."""

    async def run(arguments: dict[str, Any]) -> Any:
        contents: list[Content] = await tool.invoke(arguments=arguments)
        return "\n".join(each.text or "" for each in contents if each.type == "text")

    return [live_tool(_spec(tool), run)]
