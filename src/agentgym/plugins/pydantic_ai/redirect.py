"""Redirect models and tools of pydantic-ai's agents.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. The patched methods are not public: a test fails when a new
version of pydantic-ai changes them.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from types import ModuleType
from typing import Any

from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelResponse, ToolReturn
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_core import to_jsonable_python

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.integrations.episode import Episode
from agentgym.integrations.on_client.in_place import (
    called,
    episode_of_call,
    runs_agent,
)
from agentgym.integrations.redirect import answering, model_for
from agentgym.integrations.transport import speaking_as

_OF_FRAMEWORK = ("output", "external")
_NAME = "pydantic_ai"


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


def patch_agents(module: ModuleType) -> None:
    """Patch ``Agent`` so that its model can be replaced."""
    kind = module.Agent
    pick = kind._pick_raw_model

    def _pick_raw_model(self: Any, model: Any) -> Any:
        if (other := model_for(_NAME, instead=self.model)) is None:
            return pick(self, model)
        return ModelThroughout(other, self.name)

    kind._pick_raw_model = _pick_raw_model


def patch_tools(module: ModuleType) -> None:
    """Patch tool calls: run the current episode's tool of the same name, if any."""
    kind = module.ToolManager
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
