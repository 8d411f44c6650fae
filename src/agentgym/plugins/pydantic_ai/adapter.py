"""The pydantic-ai adapter: trains agents, which pydantic-ai runs, and exports them."""

import copy
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.tools import ToolSpec
from agentgym.integrations.base import Blueprint, Conversation
from agentgym.integrations.episode import current_episode
from agentgym.integrations.on_client.adapter import (
    ClientAdapter,
    ClientConversation,
    ClientLoop,
    Run,
    text_of,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_RETRIES = 100
"""The default agent's limit of retries after failed tool calls or invalid answers. It
exceeds an episode's usual limits, so that an episode's limit ends the run."""


class _RunConversation(ClientConversation):
    """Runs an agent once per message of the user, with all earlier messages."""

    def __init__(self, agent: Any, loop: ClientLoop) -> None:
        super().__init__(loop)
        self._agent = agent
        self._said: list[Any] | None = None

    async def answer(self, asked: Any) -> str:
        from pydantic_ai import DeferredToolRequests
        from pydantic_ai.usage import UsageLimits

        from agentgym.plugins.pydantic_ai.describe import connected, servers_of

        for server in servers_of(self._agent):
            await self._loop.servers.open(server, connected(server))
        options: dict[str, Any] = {
            "model": self._loop.models.of("pydantic_ai"),  # it may have none
            "deps": self._loop.context(),
            "usage_limits": UsageLimits(request_limit=None),
            "infer_name": False,
        }
        result = await self._agent.run(asked, message_history=self._said, **options)
        while isinstance(result.output, DeferredToolRequests):
            results = await _resolved(result.output)
            result = await self._agent.run(
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


class PydanticAIAdapter(ClientAdapter):
    """Adapter for pydantic-ai 2: ``Agent`` with tools, toolsets and output types."""

    name = "pydantic_ai"
    title = "pydantic-ai"
    extra = "pydantic-ai"
    agents = "an Agent of pydantic-ai"
    models = "a model of pydantic-ai's"
    modules = ("pydantic_ai", "openai")
    packages = ("pydantic_ai",)
    context_argument = "deps"
    inspector = "agentgym.plugins.pydantic_ai.describe"
    preload = (
        "pydantic_ai.models.openai",
        "pydantic_ai.models.test",
        "openai.resources",
        "agentgym.integrations.on_client.clients",
        inspector,
        "agentgym.plugins.pydantic_ai.redirect",
    )

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a chat model that sends its requests with ``client``.

        The model sends the schemas of tools unchanged.
        """
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider

        profile = OpenAIModelProfile(
            json_schema_transformer=None,
            openai_supports_strict_tool_definition=False,
            supports_json_schema_output=True,
        )
        provider = OpenAIProvider(openai_client=client)
        return OpenAIChatModel(name, provider=provider, profile=profile)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        from pydantic_ai import RunContext
        from pydantic_ai.tools import Tool as OwnTool

        async def call(ctx: RunContext[Any], **arguments: Any) -> str:
            return await run(arguments, ctx.tool_call_id)

        return OwnTool.from_schema(
            call, spec.name, spec.description, spec.parameters, takes_ctx=True
        )

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from pydantic_ai import Agent

        return Agent(
            model,
            name=name,
            instructions=settings.system_prompt or None,
            tools=tools,
            retries=_RETRIES,
        )

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a new conversation with ``agent``."""
        return _RunConversation(agent, loop)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent that uses ``model``, as do the agents it runs."""
        from agentgym.plugins.pydantic_ai.redirect import ModelThroughout

        made = copy.copy(agent)
        vars(made).pop("_enter_lock", None)  # created at first use, per agent
        made.model = ModelThroughout(model, agent.name)
        return made
