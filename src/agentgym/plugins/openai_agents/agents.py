"""Agents of the Agents SDK, whose models and tools are replaced in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Tools that OpenAI's servers run, e.g. web search, are left out,
because those servers do not use the trained model. The patched functions are not
public: a test fails when a new version of the SDK changes them.
"""

import copy
import dataclasses
import inspect
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    exceptions,
    set_tracing_disabled,
    trace,
)
from agents.guardrail import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail
from agents.model_settings import ModelSettings
from agents.models import get_default_model_settings
from agents.models.interface import Model
from agents.run_internal import run_loop
from agents.tool import FunctionTool, invoke_function_tool
from agents.tool_context import ToolContext
from agents.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)

from agentgym.core.openai import NO_KEY
from agentgym.core.tools import ToolSpec
from agentgym.integrations.client_adapter import (
    ClientConversation,
    ClientFramework,
    Run,
    Settings,
    current_servers,
    left_out,
    spec_of,
    text_of,
)
from agentgym.integrations.episode import current_episode, episode_or_none
from agentgym.integrations.in_place import called
from agentgym.integrations.redirect import answering, model_for, refusing_calls
from agentgym.integrations.transport import speaking_as
from agentgym.integrations.witness import saw

_TRIPPED = (
    exceptions.InputGuardrailTripwireTriggered,
    exceptions.OutputGuardrailTripwireTriggered,
    exceptions.ToolInputGuardrailTripwireTriggered,
    exceptions.ToolOutputGuardrailTripwireTriggered,
)
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


def _patch_runs() -> None:
    """Patch the functions with which a run gets an agent's model and tools."""
    module: Any = run_loop
    get_model, get_settings = module.get_model, module.get_model_settings
    get_handoffs = module.get_handoffs
    kind: Any = Agent
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


def _within(agent: Any) -> AbstractContextManager[None]:
    """Let agents that ``agent`` runs within the block use its model, if it says so."""
    if isinstance(model := agent.model, ModelOfRole):
        return answering({_NAME: model.wrapped}.get)
    return nullcontext()


def _to_copy(invoke: Callable[..., Any], model: Model) -> Callable[..., Any]:
    async def invoked(*args: Any) -> Any:
        return FRAMEWORK.on_model(await invoke(*args), model)

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
            lambda: FRAMEWORK.passes_control(tool),
            call_id=context.tool_call_id,
        )

    made.on_invoke_tool = invoke
    return made


def _reader(tool: FunctionTool) -> Any:
    """Return the validation of a function's arguments, which the SDK keeps inside."""
    run = FRAMEWORK.function(tool)
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


class _Conversation(ClientConversation):
    """Runs an agent once per message of the user.

    If an agent has handed over to another agent, that one gets the next message.
    """

    _said: Sequence[Any] = ()

    async def answer(self, asked: Any) -> str:
        if self._said:
            asked = [*self._said, {"role": "user", "content": asked}]
        options: dict[str, Any] = {
            "context": self._loop.context(),
            "max_turns": None,  # the episode has its own limit
            "run_config": RunConfig(tool_not_found_behavior="return_error_to_model"),
        }
        with trace("agentgym", disabled=True):
            try:
                result = await Runner.run(self._state, asked, **options)
                while result.interruptions:
                    state = result.to_state()
                    for call in result.interruptions:
                        state.approve(call)
                    result = await Runner.run(self._state, state, **options)
            except _TRIPPED as tripped:
                current_episode().stopped = True
                return str(tripped)
        self._said, self._state = result.to_input_list(), result.last_agent
        return text_of(result.final_output)


class _OpenAIAgentsFramework(ClientFramework):
    """Agents, tools and models of the SDK."""

    AGENTS, TOOLS, MODEL = Agent, FunctionTool, Model
    conversation = _Conversation

    def patch(self) -> None:
        _patch_runs()

    def model(self, client: Any, name: str) -> Any:
        """Return a model; the SDK's tracing is off without the user's own key."""
        if os.environ.get("OPENAI_API_KEY") in (None, "", NO_KEY):
            set_tracing_disabled(True)
        return OpenAIChatCompletionsModel(name, client)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        async def call(context: ToolContext[Any], arguments: str) -> str:
            return await run(arguments or "{}", context.tool_call_id)

        schema: Any = spec.parameters
        return FunctionTool(
            spec.name, spec.description, schema, call, strict_json_schema=False
        )

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        prompt = settings.system_prompt or None
        return Agent(name=name, instructions=prompt, model=model, tools=tools)

    def on_model(self, agent: Any, model: Any) -> Any:
        made = copy.copy(agent)
        named = agent.model if isinstance(agent.model, str) else None
        if agent.model_settings == get_default_model_settings(named):
            made.model_settings = ModelSettings()  # drop another model's defaults
        made.model = ModelOfRole(model, agent.name)
        return made

    def acts(self, value: Any) -> bool:
        is_agent = isinstance(value, Agent)
        return is_agent and bool(value.tools or value.mcp_servers or value.handoffs)

    def function(self, tool: Any) -> Any:
        return getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)

    def passes_control(self, tool: Any) -> bool:
        return tool._is_agent_tool or super().passes_control(tool)

    def spec(self, tool: Any) -> ToolSpec:
        schema = _as_taken(dict(tool.params_json_schema))
        return spec_of(tool.name, tool.description, schema, _reader(tool))

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        given = json.dumps(arguments)
        named = {"tool_name": tool.name, "tool_call_id": "call"}
        context = ToolContext(context=None, tool_arguments=given, **named)
        return await invoke_function_tool(
            function_tool=tool, context=context, arguments=given
        )


FRAMEWORK = _OpenAIAgentsFramework()
