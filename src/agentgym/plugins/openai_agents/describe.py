"""Classes of the Agents SDK, and its tools as AgentGym tools."""

import inspect
import json
from typing import Any

from agents import Agent, FunctionTool, Model
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext

from agentgym.core.tools import Tool, ToolSpec
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.scenarios.schemas import model_of_schema

AGENTS, TOOLS, MODEL = Agent, FunctionTool, Model


def tools_of(tool: FunctionTool) -> list[Tool]:
    """Convert a tool to an AgentGym tool."""

    async def run(arguments: dict[str, Any]) -> Any:
        given = json.dumps(arguments)
        context = ToolContext(
            context=None,
            tool_name=tool.name,
            tool_call_id="call",
            tool_arguments=given,
        )
        return await invoke_function_tool(
            function_tool=tool, context=context, arguments=given
        )

    return [live_tool(_spec(tool), run)]


def acts(value: Any) -> bool:
    """Return whether an object is an agent with tools or hand-offs."""
    is_agent = isinstance(value, Agent)
    return is_agent and bool(value.tools or value.mcp_servers or value.handoffs)


def _spec(tool: FunctionTool) -> ToolSpec:
    schema = _as_taken(dict(tool.params_json_schema))
    arguments = model_of_schema(tool.name, schema, _reader(tool))
    return ToolSpec(tool.name, tool.description, arguments)


def _reader(tool: FunctionTool) -> Any:
    """Return the validation of a function's arguments, which the SDK keeps inside."""
    run = getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)
    held = inspect.getclosurevars(run).nonlocals if inspect.isfunction(run) else {}
    model = getattr(held.get("schema"), "params_pydantic_model", None)
    return getattr(model, "model_validate", None)


def _as_taken(schema: Any) -> Any:
    """Return a schema in which arguments with a default or a null type are optional.

    For OpenAI's strict mode, the SDK lists all arguments as required, but it accepts
    calls without such arguments.
    """
    if isinstance(schema, list):
        return [_as_taken(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _as_taken(value) for key, value in schema.items()}
    fields, required = made.get("properties"), made.get("required")
    if isinstance(fields, dict) and isinstance(required, list):
        for field in fields.values():
            if isinstance(field, dict) and {"type": "null"} in field.get("anyOf", ()):
                field.setdefault("default", None)
        made["required"] = [x for x in required if "default" not in fields.get(x, {})]
    return made
