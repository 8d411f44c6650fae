"""Train and export CrewAI's agents and crews; CrewAI itself runs them."""

import os
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

from agentgym.core.agent import Trained
from agentgym.integrations.base import AgentLoop, Blueprint
from agentgym.integrations.client_adapter import ClientAdapter, ClientLoop
from agentgym.plugins.crewai.quiet import QUIET, environment


class CrewAILoop(ClientLoop):
    """Keeps CrewAI quiet, and its storage temporary, until it is closed."""

    def __init__(self, adapter: ClientAdapter, blueprint: Blueprint) -> None:
        with ExitStack() as stack:
            storage = TemporaryDirectory(prefix="agentgym-crewai-")
            folder = stack.enter_context(storage)
            stack.enter_context(environment(**QUIET, CREWAI_STORAGE_DIR=folder))
            from agentgym.plugins.crewai import preload  # noqa: F401

            super().__init__(adapter, blueprint)
            self._opened = stack.pop_all()

    async def close(self) -> None:
        """Close the HTTP connections, and delete CrewAI's temporary storage."""
        await super().close()
        self._opened.close()


class CrewAIAdapter(ClientAdapter):
    """Adapter for ``Agent``, ``Task``, ``Crew`` and ``Flow`` of CrewAI >= 1.15."""

    name = "crewai"
    title = "CrewAI"
    extra = "crewai"
    agents = "an Agent, Task, Crew or Flow of CrewAI"
    models = "an LLM of CrewAI's"
    modules = ("crewai",)
    packages = ("crewai", "crewai_tools")
    takes_any_input = True
    copies_factories = True
    fills_placeholders = True
    addressee = "coworker"
    inspector = "agentgym.plugins.crewai.agents"
    preload = ("agentgym.plugins.crewai.preload",)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent or crew; its model calls go to the gateway."""
        self.check()
        return CrewAILoop(self, blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a CrewAI object, without CrewAI's messages.

        It is a copy of the user's Agent, Task or Crew if that was trained, else a new
        Agent. ``options`` are the arguments of ``TrainedAgent.to_crewai``.
        """
        os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")  # else it asks users
        unset = {name: QUIET[name] for name in QUIET if name not in os.environ}
        with environment(**unset):
            made = super().wrap_agent(trained, **options)
            from agentgym.plugins.crewai.agents import silence

            silence()
            return made
