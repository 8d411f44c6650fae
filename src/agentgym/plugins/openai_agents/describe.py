"""Read prompts, tools, hand-offs and models of the Agents SDK's agents."""

import inspect
import json
from collections.abc import Iterable
from typing import Any

from agents import Agent, FunctionTool, Handoff, Model, RunContextWrapper, handoff
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext

from agentgym.core.background import in_background
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, message_of
from agentgym.integrations.base import AgentRole
from agentgym.integrations.on_client.adapter import left_out
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.plugins.openai_agents.redirect import agents_of, passes_on
from agentgym.scenarios.schemas import distinct, model_of_schema

AGENTS, TOOLS, MODEL = Agent, FunctionTool, Model


def members(agent: Any) -> list[Any]:
    """Return an agent, and all agents that it hands over to or uses as tools."""
    found: dict[int, Any] = {}
    waiting = [agent]
    while waiting:
        each = waiting.pop(0)
        if not isinstance(each, Agent) or id(each) in found:
            continue
        found[id(each)] = each
        waiting += [_target(one) for one in each.handoffs]
        for tool in each.tools:
            waiting.append(getattr(tool, "_agent_instance", None))
            waiting += agents_of(tool) if isinstance(tool, FunctionTool) else ()
    return list(found.values())


def roles(agent: Any) -> list[AgentRole]:
    """Return a description of each agent of a team, with its tools and hand-offs."""
    return [
        AgentRole(
            name=each.name,
            system_prompt=_prompt(each),
            tools=[*map(_spec, _functions(each)), *_handoff_specs(each)],
            model=each.model,
        )
        for each in members(agent)
    ]


def own_tools(found: Any) -> list[Tool]:
    """Convert the tools of an agent and its team, or one tool, to AgentGym tools."""
    if isinstance(found, FunctionTool):
        return [_own_tool(found)]
    tools = (tool for each in members(found) for tool in _functions(each))
    return distinct(_own_tool(tool) for tool in tools if not passes_on(tool))


def concerns(agent: Any) -> list[str]:
    """Return notes on tools that OpenAI's servers run, and on guardrails.

    Training leaves out such tools, and guardrails that ask a model.
    """
    found = [
        left_out(type(tool).__name__, each.name)
        for each in members(agent)
        for tool in each.tools
        if not isinstance(tool, FunctionTool)
    ]
    if guardrails := dict.fromkeys(_guardrails(agent)):
        found.append(
            f"Of its guardrails ({', '.join(guardrails)}) those that ask a model are "
            "left out of training: there they pass, unasked. In the trained agent they "
            "ask their own model."
        )
    return found


def _guardrails(agent: Any) -> Iterable[str]:
    for each in members(agent):
        tools = [tool for tool in each.tools if isinstance(tool, FunctionTool)]
        held = [each.input_guardrails, each.output_guardrails]
        held += [tool.tool_input_guardrails or [] for tool in tools]
        held += [tool.tool_output_guardrails or [] for tool in tools]
        yield from (guardrail.get_name() for some in held for guardrail in some)


def _prompt(agent: Any) -> str | None:
    return agent.instructions if isinstance(agent.instructions, str) else None


def _target(found: Any) -> Any:
    if not isinstance(found, Handoff):
        return found
    reference = found._agent_ref
    return None if reference is None else reference()


def _handoff_specs(agent: Any) -> Iterable[ToolSpec]:
    for found in agent.handoffs:
        each = found if isinstance(found, Handoff) else handoff(found)
        schema = dict(each.input_json_schema)
        arguments = model_of_schema(each.tool_name, schema)
        yield ToolSpec(each.tool_name, each.tool_description, arguments)


def _functions(agent: Any) -> list[FunctionTool]:
    """Return an agent's function tools, including those of its MCP servers."""
    own = [tool for tool in agent.tools if isinstance(tool, FunctionTool)]
    return own + in_background(_of_servers(agent)) if agent.mcp_servers else own


async def _of_servers(agent: Any) -> list[FunctionTool]:
    try:
        for server in agent.mcp_servers:
            await server.connect()
        try:
            found = await agent.get_mcp_tools(RunContextWrapper(context=None))
        finally:
            for server in agent.mcp_servers:
                await server.cleanup()
    except Exception as error:  # the server's own exception
        raise UnsupportedError(
            f"The MCP servers of {agent.name} cannot be asked for their tools: "
            f"{type(error).__name__}: {message_of(error)}."
        ) from error
    return [tool for tool in found if isinstance(tool, FunctionTool)]


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


def _own_tool(tool: FunctionTool) -> Tool:
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

    return live_tool(_spec(tool), run)
