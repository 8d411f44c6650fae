"""AgentCopies: copy agents of the Agents SDK, for another model or for episodes."""

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from agents import Agent, FunctionTool, Handoff, Model, ModelSettings
from agents.models import get_default_model_settings
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext

from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.on_client.in_place import CallInPlace
from agentgym.integrations.on_client.servers import Servers
from agentgym.integrations.openai_agents.redirect import running
from agentgym.integrations.transport import speaking_as


class ModelOfRole(Model):
    """Wraps a model, and sends an agent's name, ``role``, with each request."""

    def __init__(self, wrapped: Model, role: str) -> None:
        self.wrapped = wrapped
        self.role = role

    async def get_response(self, *args: Any, **named: Any) -> Any:
        """Send a request with the agent's name to the model, and return its answer."""
        with speaking_as(self.role):
            return await self.wrapped.get_response(*args, **named)

    async def stream_response(self, *args: Any, **named: Any) -> Any:
        """Send a request with the agent's name; yield the events of the answer."""
        events = self.wrapped.stream_response(*args, **named)
        while True:
            with speaking_as(self.role):  # not around the yield
                event = await anext(events, None)
            if event is None:
                return
            yield event


class AgentCopies:
    """Copies agents, and the agents that they hand over to; all copies use one model.

    Each agent is copied once; the originals are not changed. Tools that OpenAI's
    servers run, e.g. web search, are left out, because those servers do not use the
    trained model. ``servers`` opens the agents' MCP servers; it is None if the caller
    opens them.
    """

    def __init__(self, model: Model, servers: Servers | None = None) -> None:
        self._model = model
        self._servers = servers
        self._made: dict[int, Agent[Any]] = {}
        self._kept: list[Any] = []

    def of(self, agent: Any) -> Any:
        """Return the copy of an agent; if the agent is a copy, return it unchanged."""
        if (known := self._made.get(id(agent))) is not None:
            return known
        made = copy.copy(agent)
        self._kept += [agent, made]  # otherwise their ids could be reused
        self._made |= {id(agent): made, id(made): made}
        named = agent.model if isinstance(agent.model, str) else None
        if agent.model_settings == get_default_model_settings(named):
            made.model_settings = ModelSettings()  # drop another model's defaults
        made.model = ModelOfRole(self._model, agent.name)
        made.handoffs = [self._handoff(each) for each in agent.handoffs]
        made.input_guardrails = [self._guardrail(x) for x in agent.input_guardrails]
        made.output_guardrails = [self._guardrail(x) for x in agent.output_guardrails]
        vars(made)["get_all_tools"] = self._tools(agent)
        return made

    def _handoff(self, found: Any) -> Any:
        if not isinstance(found, Handoff):
            return self.of(found)
        invoke = found.on_invoke_handoff

        async def invoked(*args: Any) -> Any:
            with running(self.of):
                return self.of(await invoke(*args))

        return dataclasses.replace(found, on_invoke_handoff=invoked)

    def _guardrail(self, found: Any) -> Any:
        check = found.guardrail_function

        async def checked(*args: Any) -> Any:
            with running(self.of):
                said = check(*args)
                return await said if inspect.isawaitable(said) else said

        return dataclasses.replace(
            found, guardrail_function=checked, name=found.get_name()
        )

    def _tools(self, agent: Any) -> Callable[[Any], Any]:
        async def get_all_tools(context: Any) -> list[Any]:
            if self._servers is not None:
                for server in agent.mcp_servers:
                    await self._servers.open(server, server)
            with running(self.of):
                found = await agent.get_all_tools(context)
            return [self._tool(x) for x in found if isinstance(x, FunctionTool)]

        return get_all_tools

    def _tool(self, tool: FunctionTool) -> FunctionTool:
        made = copy.copy(tool)
        made.timeout_seconds = None  # the inner call's timeout applies

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            async def run(given: str) -> Any:
                with running(self.of):
                    return await invoke_function_tool(
                        function_tool=tool, context=context, arguments=given
                    )

            return await _in_episode(tool.name, context, arguments, run)

        made.on_invoke_tool = invoke
        return made


async def _in_episode(
    name: str, context: ToolContext[Any], arguments: str, run: Callable[[str], Any]
) -> Any:
    """Run the current episode's tool ``name``, if there is one; else call ``run``."""
    episode = episode_or_none()
    if episode is None or name not in episode.tools:
        return await run(arguments)

    async def run_in_place(given: dict[str, Any]) -> Any:
        return await run(arguments)

    call = CallInPlace(name, run_in_place)
    with call.running():
        text = await episode.use_tool(
            name, arguments or "{}", call_id=context.tool_call_id
        )
    return call.result(text)
