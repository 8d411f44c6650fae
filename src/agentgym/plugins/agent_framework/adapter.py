"""The adapter of Microsoft Agent Framework: trains agents and workflows."""

from functools import partial
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.tools import ToolSpec
from agentgym.integrations.base import Blueprint, Conversation
from agentgym.integrations.on_client.adapter import ClientAdapter, ClientLoop, Run

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST = 1_000
"""The default agent's limit of model requests, and its limit of failed tool calls in a
row. Both exceed an episode's own limits, so that an episode's limit ends the run."""


class AgentFrameworkAdapter(ClientAdapter):
    """Adapter for ``Agent`` and workflows of agents of agent-framework-core 1.23."""

    name = "agent_framework"
    title = "Agent Framework"
    extra = "agent-framework"
    agents = "an Agent of Agent Framework, or the Workflow that a builder builds"
    models = "a chat client of Agent Framework's"
    modules = ("agent_framework", "agent_framework_openai", "openai")
    packages = ("agent_framework", "agent_framework_openai")
    takes_any_input = True
    inspector = "agentgym.plugins.agent_framework.describe"
    preload = (
        "agent_framework.openai",
        "openai.resources",
        "agentgym.integrations.on_client.clients",
        "agentgym.plugins.agent_framework.conversation",
        inspector,
    )

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return the framework's chat client, which sends requests with ``client``."""
        from agent_framework.openai import OpenAIChatCompletionClient

        made: Any = OpenAIChatCompletionClient(model=name, async_client=client)
        made.function_invocation_configuration |= {
            "max_iterations": _MOST,
            "max_consecutive_errors_per_request": _MOST,
        }
        return made

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        from agent_framework import FunctionTool

        from agentgym.plugins.agent_framework.redirect import as_written

        async def call(**arguments: Any) -> str:
            return await run(arguments, None)

        made = FunctionTool(
            name=spec.name,
            description=spec.description,
            func=call,
            input_model=spec.parameters,
        )

        async def invoke(
            *, arguments: Any = None, tool_call_id: str | None = None, **named: Any
        ) -> Any:
            text = await run(as_written(made, arguments), tool_call_id)
            return FunctionTool.parse_result(text)

        vars(made)["invoke"] = invoke  # error texts as in other frameworks
        return made

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from agent_framework import Agent

        return Agent(model, settings.system_prompt or None, name=name, tools=tools)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a conversation with a copy of ``agent``."""
        from agentgym.plugins.agent_framework.conversation import (
            FrameworkConversation,
        )

        return FrameworkConversation(agent, loop)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent or workflow in which all agents use ``model``."""
        from agent_framework import Workflow

        from agentgym.plugins.agent_framework.copies import (
            on_model,
            workflow_copied,
        )

        if not isinstance(agent, Workflow):
            return on_model(agent, model)
        return workflow_copied(agent, partial(on_model, model=model), model)
