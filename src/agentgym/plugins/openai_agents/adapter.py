"""The adapter of the OpenAI Agents SDK: trains agents, which the SDK itself runs."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.openai import NO_KEY
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.install import install_command
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


class _RunConversation(ClientConversation):
    """Runs an agent once per message of the user.

    If an agent has handed over to another agent, that one gets the next message.
    """

    def __init__(self, agent: Any, loop: ClientLoop) -> None:
        super().__init__(loop)
        self._agent = agent
        self._said: list[Any] = []

    async def answer(self, asked: Any) -> str:
        from agents import RunConfig, Runner, trace
        from agents.exceptions import (
            InputGuardrailTripwireTriggered,
            OutputGuardrailTripwireTriggered,
            ToolInputGuardrailTripwireTriggered,
            ToolOutputGuardrailTripwireTriggered,
        )

        if self._said:
            asked = [*self._said, {"role": "user", "content": asked}]
        options: dict[str, Any] = {
            "context": self._loop.context(),
            "max_turns": None,  # the episode has its own limit
            "run_config": RunConfig(tool_not_found_behavior="return_error_to_model"),
        }
        with trace("agentgym", disabled=True):
            try:
                result = await Runner.run(self._agent, asked, **options)
                while result.interruptions:
                    state = result.to_state()
                    for call in result.interruptions:
                        state.approve(call)
                    result = await Runner.run(self._agent, state, **options)
            except (
                InputGuardrailTripwireTriggered,
                OutputGuardrailTripwireTriggered,
                ToolInputGuardrailTripwireTriggered,
                ToolOutputGuardrailTripwireTriggered,
            ) as tripped:
                current_episode().stopped = True
                return str(tripped)
        self._said, self._agent = result.to_input_list(), result.last_agent
        return text_of(result.final_output)


def _is_sdk(file: str | None) -> bool:
    return file is not None and Path(file).with_name("run_config.py").is_file()


class OpenAIAgentsAdapter(ClientAdapter):
    """Adapter for agents of openai-agents 0.20, also with hand-offs and guardrails."""

    name = "openai_agents"
    title = "OpenAI Agents SDK"
    extra = "openai-agents"
    agents = "an Agent of the OpenAI Agents SDK"
    models = "a model of the OpenAI Agents SDK"
    modules = ("agents", "openai")
    packages = ("agents",)
    context_argument = "context"
    inspector = "agentgym.plugins.openai_agents.describe"
    preload = (
        "agents",
        "openai.resources",
        "agentgym.integrations.on_client.clients",
        "agentgym.plugins.openai_agents.redirect",
        inspector,
    )

    def owns(self, root: str) -> bool:
        """Return whether a module is the SDK, not a user's module named ``agents``."""
        found = sys.modules.get(root) if super().owns(root) else None
        return found is not None and _is_sdk(getattr(found, "__file__", None))

    def check(self) -> None:
        """Check that the SDK is installed, and not hidden by a user's module."""
        super().check()
        spec = find_spec("agents")
        if spec is not None and not _is_sdk(spec.origin):
            raise UnsupportedError(
                f"{spec.origin} hides the package `agents` of the OpenAI Agents SDK: "
                "give it another name, and install the SDK if it is missing: "
                f"{install_command(self.extra)}"
            )

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a chat-completions model that sends its requests with ``client``.

        If the user has not set OPENAI_API_KEY, the SDK's tracing is turned off.
        """
        from agents import OpenAIChatCompletionsModel, set_tracing_disabled

        if os.environ.get("OPENAI_API_KEY") in (None, "", NO_KEY):
            set_tracing_disabled(True)
        return OpenAIChatCompletionsModel(name, client)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        from agents import FunctionTool
        from agents.tool_context import ToolContext

        async def call(context: ToolContext[Any], arguments: str) -> str:
            return await run(arguments or "{}", context.tool_call_id)

        return FunctionTool(
            name=spec.name,
            description=spec.description,
            params_json_schema=spec.parameters,
            on_invoke_tool=call,
            strict_json_schema=False,
        )

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from agents import Agent

        return Agent(
            name=name,
            instructions=settings.system_prompt or None,
            model=model,
            tools=tools,
        )

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a new conversation with ``agent``."""
        return _RunConversation(agent, loop)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent that uses ``model``, as do the agents it runs."""
        from agentgym.plugins.openai_agents.redirect import on_model

        return on_model(agent, model)
