"""The smolagents adapter: trains agents, which smolagents runs, and exports them."""

import asyncio
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.background import call_in_thread
from agentgym.core.tools import ToolSpec
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import current_episode
from agentgym.integrations.on_client.adapter import Run, text_of
from agentgym.plugins.frameworks import ReadingAdapter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST = 10_000
"""Limit of an agent's steps. It exceeds an episode's limits, which end the run."""


class SmolagentsAdapter(ReadingAdapter):
    """Adapter for ``ToolCallingAgent`` of smolagents 1.26, with managed agents."""

    name = "smolagents"
    title = "smolagents"
    extra = "smolagents"
    agents = "an agent of smolagents: a ToolCallingAgent"
    models = "a model of smolagents"
    modules = ("smolagents", "openai")
    packages = ("smolagents",)
    inspector = "agentgym.plugins.smolagents.agents"
    preload = ("openai.resources", inspector)

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a model of smolagents that sends its requests with ``client``."""
        return self.parts.SmolagentsModel(client, name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        return self.parts.SmolagentsTool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until ``final_answer``."""
        from smolagents.agents import EMPTY_PROMPT_TEMPLATES, ToolCallingAgent

        templates: Any = dict(EMPTY_PROMPT_TEMPLATES)
        templates["system_prompt"] = (
            "{% raw %}" + settings.system_prompt + "{% endraw %}"
        )
        return ToolCallingAgent(tools, model, templates, verbosity_level=-1)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent and its managed agents that uses ``model``."""
        return self.parts.copied(agent, model)

    def begin(self, agent: Any) -> Any:
        """Return a copy of an agent, which prints nothing."""
        return self.parts.copied(agent)

    async def answer(self, state: Any, asked: Any) -> str:
        """Run the agent in a thread, as its ``run`` is sync."""
        goes_on = bool(state.memory.steps)
        try:
            named = {"reset": not goes_on, "max_steps": _MOST}
            return text_of(await call_in_thread(state.run, asked, **named))
        except asyncio.CancelledError:
            current_episode().cut_short("cancelled")  # so the thread's next call fails
            raise
