"""Redirect models and tools of the Agents SDK's agents.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Tools that OpenAI's servers run, e.g. web search, are left out,
because those servers do not use the trained model. The patched functions are not
public: a test fails when a new version of the SDK changes them.
"""

import copy
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from agents.guardrail import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail
from agents.model_settings import ModelSettings
from agents.models import get_default_model_settings
from agents.models.interface import Model
from agents.tool import FunctionTool, invoke_function_tool
from agents.tool_context import ToolContext
from agents.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)

from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.on_client.adapter import left_out
from agentgym.integrations.on_client.in_place import called, runs_agent
from agentgym.integrations.on_client.servers import current_servers
from agentgym.integrations.redirect import answering, model_for, refusing_calls
from agentgym.integrations.transport import speaking_as
from agentgym.integrations.witness import saw

_NAME = "openai_agents"
_PASSED = {
    InputGuardrail: GuardrailFunctionOutput(None, tripwire_triggered=False),
    OutputGuardrail: GuardrailFunctionOutput(None, tripwire_triggered=False),
    ToolInputGuardrail: ToolGuardrailFunctionOutput.allow(),
    ToolOutputGuardrail: ToolGuardrailFunctionOutput.allow(),
}


_GUARDS = (
    "Guardrails that ask a model are left out of training: there they pass, unasked. "
    "In the trained agent they ask their own model."
)


class _AsksModel(BaseException):
    """Ends a guardrail at its model call, past ``except Exception`` in its code."""


class ModelOfRole(Model):
    """Wraps a model, and sends an agent's name, ``role``, with each request.

    Agents that an agent with this model runs or hands over to use the model too.
    """

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


def on_model(agent: Any, model: Model) -> Any:
    """Return a copy of an agent that uses ``model``, as do the agents it runs."""
    made = copy.copy(agent)
    named = agent.model if isinstance(agent.model, str) else None
    if agent.model_settings == get_default_model_settings(named):
        made.model_settings = ModelSettings()  # drop another model's defaults
    made.model = ModelOfRole(model, agent.name)
    return made


def patch_runs(module: Any) -> None:
    """Patch the functions with which a run gets an agent's model and tools."""
    get_model, get_settings = module.get_model, module.get_model_settings
    get_handoffs = module.get_handoffs
    kind: Any = module.Agent
    get_all_tools = kind.get_all_tools

    def model_of(agent: Any, config: Any) -> Any:
        other = model_for(_NAME, instead=agent.model)
        if other is None:
            return get_model(agent, config)
        return ModelOfRole(other, agent.name)

    def settings_of(agent: Any, config: Any) -> Any:
        if (other := model_for(_NAME)) is not None:
            config = dataclasses.replace(config, model=other)
        return get_settings(agent, config)

    async def handoffs_of(agent: Any, context: Any) -> Any:
        found = await get_handoffs(agent, context)
        if not isinstance(model := agent.model, ModelOfRole):
            return found
        return [
            dataclasses.replace(
                each, on_invoke_handoff=_to_copy(each.on_invoke_handoff, model.wrapped)
            )
            for each in found
        ]

    async def tools_of(self: Any, context: Any) -> Any:
        if model_for(_NAME) is None and not isinstance(self.model, ModelOfRole):
            return await get_all_tools(self, context)
        if (servers := current_servers()) is not None:
            for server in self.mcp_servers:
                await servers.open(server, server)
        with _within(self):
            found = await get_all_tools(self, context)
        for tool in found:
            if not isinstance(tool, FunctionTool):
                left_out(tool)
        return [_routed(x, self) for x in found if isinstance(x, FunctionTool)]

    module.get_model, module.get_model_settings = model_of, settings_of
    module.get_handoffs = handoffs_of
    kind.get_all_tools = tools_of
    for guardrail, passed in _PASSED.items():
        patched: Any = guardrail
        patched.run = _without_model(patched.run, passed)


def _passes_on(tool: FunctionTool) -> bool:
    """Return whether a tool runs another agent."""
    function = getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)
    return tool._is_agent_tool or runs_agent(function)


def _within(agent: Any) -> AbstractContextManager[None]:
    """Let agents that ``agent`` runs within the block use its model, if it says so."""
    if isinstance(model := agent.model, ModelOfRole):
        return answering({_NAME: model.wrapped}.get)
    return nullcontext()


def _to_copy(invoke: Callable[..., Any], model: Model) -> Callable[..., Any]:
    async def invoked(*args: Any) -> Any:
        return on_model(await invoke(*args), model)

    return invoked


def _without_model(check: Callable[..., Any], passed: Any) -> Callable[..., Any]:
    """Return ``check`` with which a guardrail passes in episodes if it asks a model.

    The task's reward would train the model to let everything pass, and a model that
    cannot judge yet would end all rollouts.
    """

    async def run(self: Any, *args: Any, **named: Any) -> Any:
        if episode_or_none() is None:
            return await check(self, *args, **named)
        try:
            with refusing_calls(_AsksModel()):
                return await check(self, *args, **named)
        except _AsksModel:
            saw(note=_GUARDS)
            always = dataclasses.replace(self, guardrail_function=lambda *_: passed)
            return await check(always, *args, **named)

    return run


def _routed(tool: FunctionTool, agent: Any) -> FunctionTool:
    made = copy.copy(tool)
    made.timeout_seconds = None  # the inner call's timeout applies

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        async def run(_: Any) -> Any:
            with _within(agent):
                return await invoke_function_tool(
                    function_tool=tool, context=context, arguments=arguments
                )

        return await called(
            tool.name,
            arguments or "{}",
            run,
            lambda: _passes_on(tool),
            call_id=context.tool_call_id,
        )

    made.on_invoke_tool = invoke
    return made
