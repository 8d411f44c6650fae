"""The CrewAI adapter: trains agents, crews and flows, which CrewAI itself runs."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.background import call_in_thread
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_import import make
from agentgym.integrations.base import AgentLoop, Blueprint, Conversation
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.on_client.adapter import (
    ClientAdapter,
    ClientConversation,
    ClientLoop,
    Run,
    text_of,
)
from agentgym.plugins.crewai.quiet import QUIET, environment, silence

if TYPE_CHECKING:
    from openai import AsyncOpenAI


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


class _CrewAIConversation(ClientConversation):
    def __init__(self, runs: Any, loop: ClientLoop) -> None:
        super().__init__(loop)
        self._runs = runs

    async def _kick_off(self, text: Any) -> Any:
        """Call ``kickoff(text)`` of the agent or crew in a thread; return its output.

        Returns None if the model's answer was empty. If a tool's exception or a limit
        ended the episode, raises it, although CrewAI has handled it.
        """
        from crewai.events import crewai_event_bus
        from crewai.tools.tool_failure import ToolExecutionFailedError

        from agentgym.plugins.crewai.gateway import require_running

        crewai_event_bus.reset_runtime_state()  # it would keep the agents of all runs
        output = None
        try:
            output = await call_in_thread(self._runs.kickoff, text)
        except asyncio.CancelledError:
            current_episode().cut_short("cancelled")  # so the thread's next call fails
            raise
        except Exception as error:
            require_running()
            if isinstance(error, ToolExecutionFailedError):
                raise EpisodeCut("stuck", str(error)) from None
            if "None or empty" not in str(error):
                raise
        require_running()
        return output


class _AgentConversation(_CrewAIConversation):
    """Runs an agent once per user message, each time with all messages so far."""

    _messages: Sequence[dict[str, Any]] = ()

    def asked(self, message: str, given: Any) -> Any:
        if not isinstance(given, str | None):
            raise self._loop.wrong_input(given, "the text of the agent's input")
        return [*self._messages, {"role": "user", "content": given or message}]

    async def answer(self, asked: Any) -> str:
        output = await self._kick_off(asked)
        if output is None:
            return ""
        said = [m for m in output.messages if m["role"] != "system"]
        said[-1] = {**said[-1], "content": output.raw}  # CrewAI has stripped it
        self._messages = said
        return str(output.raw)


class _CrewConversation(_CrewAIConversation):
    """Runs a crew or a new flow, once: it cannot continue a conversation."""

    def asked(self, message: str, given: Any) -> Any:
        from agentgym.plugins.crewai.crews import inputs_of

        if self._has_begun:
            raise UnsupportedError(
                "A Crew, Task or Flow of CrewAI answers once, and the scenario's user "
                "says more. Let the factory return an Agent, which can go on."
            )
        if not isinstance(given, Mapping | None):
            raise self._loop.wrong_input(
                given, "a dict, as kickoff(inputs=...) takes it"
            )
        return inputs_of(self._runs, message, dict(given or {}))

    async def answer(self, asked: Any) -> str:
        output = await self._kick_off(asked)
        return "" if output is None else text_of(getattr(output, "raw", output))


class CrewAIAdapter(ClientAdapter):
    """Adapter for ``Agent``, ``Task``, ``Crew`` and ``Flow`` of CrewAI >= 1.15."""

    name = "crewai"
    title = "CrewAI"
    extra = "crewai"
    models = "an LLM of CrewAI's"
    modules = ("crewai",)
    packages = ("crewai", "crewai_tools")
    takes_any_input = True
    copies_factories = True
    fills_placeholders = True
    addressee = "coworker"
    inspector = "agentgym.plugins.crewai.crews"
    preload = ("agentgym.plugins.crewai.preload",)

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is an Agent, a Flow, or a Task or Crew with an agent."""
        self.check()
        self.describe().members(agent, origin)

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return an LLM with the address, key and HTTP clients of ``client``."""
        from agentgym.plugins.crewai.gateway import GatewayLLM

        sync = getattr(client, "sync_http", None)
        http = None if sync is None else (sync, client._client)
        return GatewayLLM.at(str(client.base_url), client.api_key, name, http)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of CrewAI with the schema ``spec``; it calls ``run``."""
        from agentgym.plugins.crewai.tools import CrewSpecTool

        return CrewSpecTool.of(spec, run)

    def bound(self, tool: Tool) -> Any:
        """Convert an AgentGym tool, unless CrewAI would offer it by another name."""
        from crewai.utilities.string_utils import sanitize_tool_name

        if (known_as := sanitize_tool_name(tool.spec.name)) != tool.spec.name:
            raise UnsupportedError(
                f"CrewAI offers the tool {tool.spec.name!r} to the model as "
                f"{known_as!r}, and it was trained with its own name. Name it "
                f"{known_as!r}."
            )
        return super().bound(tool)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        is_exported = isinstance(settings, AgentSpec)
        return self.describe().default_agent(model, tools, settings, is_exported)

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> Any:
        """Return an agent or crew to be copied, or a function that makes a flow."""
        from crewai import Crew, Flow

        from agentgym.plugins.crewai.copies import in_training
        from agentgym.plugins.crewai.tools import require_apart

        source, crews = loop.blueprint.agent, self.describe()
        origin = source.reference or ""
        require_apart([tool.name for tool in tools])
        silence()
        if isinstance(agent, Flow):
            again = type(agent) if loop.found is agent else loop.found
            return lambda: make(again, origin, llm=loop.model, tools=tools)
        form = crews.runner(agent, origin)
        if isinstance(form, Crew):
            crews.require_inputs(form, origin, source.inputs is not None)
        return in_training(form, loop.model)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a conversation with a new copy of the agent, crew or flow."""
        from crewai import Agent, Crew

        from agentgym.plugins.crewai.copies import copied

        if isinstance(agent, Agent):
            return _AgentConversation(copied(agent), loop)
        runs = copied(agent) if isinstance(agent, Crew) else agent()
        return _CrewConversation(runs, loop)

    def members(self, agent: Any) -> dict[str, Any]:
        """Return the agents of a crew, with their LLMs."""
        crews = self.describe()
        return {crews.role_of(x): x.llm for x in crews.members(agent, "It")}

    def notes(self, agent: Any) -> list[str]:
        """Return notes on how an agent or crew behaves in training."""
        found: list[str] = self.describe().notes(agent)
        return found

    def trained_model(
        self, trained: Trained, base_url: str | None = None, api_key: str | None = None
    ) -> Any:
        """Return an LLM that answers with a trained agent's weights."""
        from agentgym.plugins.crewai.gateway import PlainLLM

        at = TrainedEndpoint.of(trained, base_url, api_key)
        sync, client = at.sync_http(), at.http()
        return PlainLLM.at(
            at.base_url,
            at.api_key,
            at.model,
            None if sync is None or client is None else (sync, client),
            temperature=at.temperature,
            max_completion_tokens=at.max_tokens,
        )

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an Agent, Task or Crew whose LLMs are all ``model``."""
        from agentgym.plugins.crewai.copies import with_model

        return with_model(agent, model)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent or crew; its model calls go to the gateway."""
        self.check()
        return CrewAILoop(self, blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a CrewAI object.

        It is a copy of the user's Agent, Task or Crew if that was trained, else a new
        Agent. ``options`` are the arguments of ``TrainedAgent.to_crewai``.
        """
        os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")  # else it asks users
        unset = {name: QUIET[name] for name in QUIET if name not in os.environ}
        with environment(**unset):
            made = super().wrap_agent(trained, **options)
            silence()
            return made
