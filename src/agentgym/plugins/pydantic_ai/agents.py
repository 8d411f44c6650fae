"""Agents of pydantic-ai, whose models and tools are replaced in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. The patched methods are not public: a test fails when a new
version of pydantic-ai changes them.
"""

import asyncio
import copy
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelResponse, ToolReturn
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import Tool as OwnTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_core import to_jsonable_python

from agentgym.core.background import in_background
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, message_of
from agentgym.integrations.client_adapter import (
    ClientConversation,
    ClientFramework,
    Run,
    Settings,
    spec_of,
    text_of,
)
from agentgym.integrations.episode import Episode, current_episode
from agentgym.integrations.in_place import (
    called,
    episode_of_call,
    live_tool,
    runs_agent,
)
from agentgym.integrations.redirect import answering, model_for
from agentgym.integrations.transport import speaking_as

_OF_FRAMEWORK = ("output", "external")
_NAME = "pydantic_ai"
_RETRIES = 100
"""The default agent's limit of retries after failed tool calls or invalid answers. It
exceeds an episode's usual limits, so that an episode's limit ends the run."""
_FAILING = (Exception, asyncio.CancelledError)
"""Exceptions that listing tools may raise. If a server closes the connection, the tasks
that wait for the server are cancelled."""


class ModelThroughout(WrapperModel):
    """Wraps an agent's model, and sends the agent's name, ``role``, with each request.

    Agents that are run by the agent's tools use the model too.
    """

    def __init__(self, wrapped: Model, role: str | None) -> None:
        super().__init__(wrapped)
        self.role = role or DEFAULT_AGENT

    async def request(self, *args: Any, **named: Any) -> ModelResponse:
        """Send a request with the agent's name to the model, and return its answer."""
        with speaking_as(self.role):
            return await super().request(*args, **named)

    @asynccontextmanager
    async def request_stream(
        self, *args: Any, **named: Any
    ) -> AsyncGenerator[StreamedResponse]:
        """Send a request with the agent's name to the model, and stream the answer."""
        async with AsyncExitStack() as stack:
            with speaking_as(self.role):  # not around the yield
                streamed = self.wrapped.request_stream(*args, **named)
                response = await stack.enter_async_context(streamed)
            yield response


def _patch_agents() -> None:
    kind: Any = Agent
    pick = kind._pick_raw_model

    def _pick_raw_model(self: Any, model: Any) -> Any:
        if (other := model_for(_NAME, instead=self.model)) is None:
            return pick(self, model)
        return ModelThroughout(other, self.name)

    kind._pick_raw_model = _pick_raw_model


def _patch_tools() -> None:
    kind: Any = ToolManager
    validate, execute = kind.validate_tool_call, kind._raw_execute

    async def validate_tool_call(self: Any, call: Any, **named: Any) -> Any:
        tool = (self.tools or {}).get(call.tool_name)
        if _episode_of(tool, call.tool_name) is None:
            return await validate(self, call, **named)
        ctx = self._build_tool_context(
            call,
            tool,
            allow_partial=False,
            approved=True,  # for live tools that ask for approval
            metadata=named.get("metadata"),
        )
        return self._make_validation_success(call, tool, ctx, {})

    async def _raw_execute(self: Any, validated: Any, **named: Any) -> Any:
        call, tool, ctx = validated.call, validated.tool, validated.ctx
        model = ctx.model
        throughout = isinstance(model, ModelThroughout)
        with answering({_NAME: model.wrapped}.get) if throughout else nullcontext():
            if _episode_of(tool, call.tool_name) is None:
                return await execute(self, validated, **named)

            async def run(arguments: dict[str, Any]) -> Any:
                checked = tool.args_validator.validate_python(arguments)
                return await self.toolset.call_tool(call.tool_name, checked, ctx, tool)

            try:
                return await called(
                    call.tool_name,
                    call.args or {},
                    run,
                    lambda: False,
                    call_id=call.tool_call_id,
                    read=_as_read,
                    handled=(ModelRetry, ToolFailed),
                    not_done=(CallDeferred, ApprovalRequired),
                )
            except ToolFailed as error:
                raise self._wrap_error_as_failed(call.tool_name, call, error) from error
            except ModelRetry as error:
                try:
                    self._check_max_retries(call.tool_name, tool.max_retries, error)
                except UnexpectedModelBehavior:
                    # The model's failure must not end the run.
                    return f"Error: {type(error).__name__}: {error}"
                self.failed_tools.add(call.tool_name)
                raise self._wrap_error_as_retry(call.tool_name, call, error) from error

    kind.validate_tool_call, kind._raw_execute = validate_tool_call, _raw_execute


def _as_read(result: Any) -> Any:
    """Return a tool's result as the JSON or text that the model reads."""
    if isinstance(result, ToolReturn):
        result = result.return_value
    return "" if result is None else to_jsonable_python(result, fallback=str)


def _episode_of(tool: Any, name: str) -> Episode | None:
    if tool is None or tool.tool_def.kind in _OF_FRAMEWORK:
        return None
    while hasattr(tool, "source_tool"):  # of several toolsets
        tool = tool.source_tool
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    function = getattr(schema, "function", None)
    return episode_of_call(name, lambda: runs_agent(function))


def _servers_in(toolset: AbstractToolset[Any]) -> list[Any]:
    mcp = sys.modules.get("pydantic_ai.mcp")  # imported by any code with a server
    parts: list[Any] = []
    toolset.apply(parts.append)
    return [x for x in parts if mcp is not None and isinstance(x, mcp.MCPToolset)]


@asynccontextmanager
async def _connected(toolset: AbstractToolset[Any]) -> AsyncIterator[None]:
    """Enter a toolset within the block, and close its MCP servers afterwards.

    Otherwise the clients of these servers would keep the servers alive.
    """
    try:
        async with toolset:
            yield
    finally:
        for server in _servers_in(toolset):
            await server.client.close()


async def _listed(toolset: AbstractToolset[Any]) -> list[Tool]:
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    run = await toolset.for_run(context)
    async with _connected(run):  # close servers: episodes use another event loop
        step = await run.for_run_step(context)
        found = await step.get_tools(context)
    return [_own_tool(name, step, each, context) for name, each in found.items()]


def _own_tool(name: str, toolset: Any, tool: Any, context: RunContext[Any]) -> Tool:
    definition = tool.tool_def

    async def run(arguments: dict[str, Any]) -> Any:
        checked = tool.args_validator.validate_python(arguments)
        async with toolset:
            return await toolset.call_tool(name, checked, context, tool)

    schema = definition.parameters_json_schema
    read = tool.args_validator.validate_python
    return live_tool(spec_of(name, definition.description, schema, read), run)


class _Conversation(ClientConversation):
    """Runs an agent once per message of the user, with all earlier messages."""

    _said: list[Any] | None = None

    async def answer(self, asked: Any) -> str:
        for toolset in self._state.toolsets:
            for server in _servers_in(toolset):
                await self._loop.models.servers.open(server, _connected(server))
        options: dict[str, Any] = {
            "model": self._loop.models.of("pydantic_ai"),  # it may have none
            "deps": self._loop.context(),
            "usage_limits": UsageLimits(request_limit=None),
            "infer_name": False,
        }
        result = await self._state.run(asked, message_history=self._said, **options)
        while isinstance(result.output, DeferredToolRequests):
            results = await _resolved(result.output)
            result = await self._state.run(
                message_history=result.all_messages(),
                deferred_tool_results=results,
                **options,
            )
        self._said = result.all_messages()
        return text_of(result.output)


async def _resolved(requests: Any) -> Any:
    """Return the results for tool calls that the framework did not run.

    Calls that wait for approval are approved. For other calls, the episode's tools are
    run.
    """
    episode = current_episode()
    calls = {
        call.tool_call_id: await episode.use_tool(
            call.tool_name, call.args or {}, call_id=call.tool_call_id
        )
        for call in requests.calls
    }
    return requests.build_results(calls=calls, approve_all=True)


class _PydanticAIFramework(ClientFramework):
    """Agents, tools and models of pydantic-ai."""

    AGENTS, TOOLS, MODEL = Agent, (OwnTool, AbstractToolset), Model
    conversation = _Conversation

    def patch(self) -> None:
        _patch_agents()
        _patch_tools()

    def model(self, client: Any, name: str) -> Any:
        """Return a chat model, which sends the schemas of tools unchanged."""
        profile = OpenAIModelProfile(
            json_schema_transformer=None,
            openai_supports_strict_tool_definition=False,
            supports_json_schema_output=True,
        )
        provider = OpenAIProvider(openai_client=client)
        return OpenAIChatModel(name, provider=provider, profile=profile)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        async def call(ctx: RunContext[Any], **arguments: Any) -> str:
            return await run(arguments, ctx.tool_call_id)

        schema: Any = spec.parameters
        return OwnTool.from_schema(
            call, spec.name, spec.description, schema, takes_ctx=True
        )

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        prompt = settings.system_prompt or None
        named: Any = {"name": name, "instructions": prompt, "tools": tools}
        return Agent(model, retries=_RETRIES, **named)

    def on_model(self, agent: Any, model: Any) -> Any:
        made = copy.copy(agent)
        vars(made).pop("_enter_lock", None)  # created at first use, per agent
        made.model = ModelThroughout(model, agent.name)
        return made

    def acts(self, value: Any) -> bool:
        if not isinstance(value, Agent):
            return False
        return any(getattr(toolset, "tools", None) for toolset in value.toolsets)

    def tools_of(self, found: Any) -> list[Tool]:
        toolset = FunctionToolset([found]) if isinstance(found, OwnTool) else found
        try:
            return in_background(_listed(toolset))
        except _FAILING as error:  # the toolset's own code, or a server
            raise UnsupportedError(
                f"The tools of {toolset.label} cannot be listed before it runs: "
                f"{type(error).__name__}: {message_of(error)}."
            ) from error


FRAMEWORK = _PydanticAIFramework()
