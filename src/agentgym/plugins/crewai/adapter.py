"""The CrewAI adapter: trains agents and crews, which CrewAI itself runs."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from agentgym.core.agent import Trained
from agentgym.core.background import call_in_thread
from agentgym.core.task import Task
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, UsageError
from agentgym.integrations.agent_import import (
    kind_of,
    load_agent,
    make,
    takes_model,
    takes_tools,
    values_for,
)
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
    refuse_context,
    refuse_graph_options,
)
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.gateway_models import GatewayModels
from agentgym.integrations.on_client.adapter import text_of
from agentgym.integrations.registry import require
from agentgym.integrations.tool_sets import ToolSets
from agentgym.plugins.crewai.quiet import QUIET, environment, silence


class CrewAIAgent(AgentLoop):
    """Runs a new copy of an agent or a crew in each episode."""

    def __init__(self, blueprint: Blueprint) -> None:
        refuse_context(blueprint, "CrewAI")
        refuse_graph_options(blueprint, "CrewAI")
        self._blueprint = blueprint
        self._inputs = values_for(blueprint.agent.inputs, "--inputs")
        with ExitStack() as stack:
            storage = TemporaryDirectory(prefix="agentgym-crewai-")
            folder = stack.enter_context(storage)
            stack.enter_context(environment(**QUIET, CREWAI_STORAGE_DIR=folder))
            from agentgym.plugins.crewai import preload  # noqa: F401

            origin = blueprint.agent.reference
            differs = origin is None or takes_tools(load_agent(origin))
            self._models = GatewayModels(blueprint)
            self._llm = self._models.of("crewai")
            self._forms = ToolSets(blueprint.tools, self._build, differs=differs)
            self._opened = stack.pop_all()

    def _build(self, specs: list[ToolSpec]) -> Any:
        from agentgym.plugins.crewai.crews import default_agent
        from agentgym.plugins.crewai.tools import CrewEpisodeTool, require_apart

        blueprint = self._blueprint
        require_apart(specs)
        tools = [CrewEpisodeTool.of(spec) for spec in specs]
        if blueprint.agent.reference is None:
            prompt, most = blueprint.system_prompt, blueprint.max_turns
            form = default_agent(self._llm, tools, prompt, most)
            self.agent = form if self.agent is None else self.agent
        else:
            form = self._take(blueprint.agent.reference, tools)
        silence()
        return form

    def _take(self, origin: str, tools: list[Any]) -> Any:
        from crewai import Agent, Flow

        from agentgym.plugins.crewai.copies import in_training
        from agentgym.plugins.crewai.crews import (
            members,
            notes,
            require_inputs,
            role_of,
            runner,
        )

        found = load_agent(origin)
        agent = make(found, origin, llm=self._llm, tools=tools)
        if self.agent is None:
            self.agent = agent
        form = runner(agent, origin)
        self.notes = notes(agent)
        self.members = {role_of(x): x.llm for x in members(agent, origin)}
        if isinstance(form, Flow):
            self.way = "every rollout has a new flow, all of whose llms are replaced"
            again = type(form) if found is agent else found
            return lambda: make(again, origin, llm=self._llm, tools=tools)
        if not isinstance(form, Agent):
            require_inputs(form, origin, self._blueprint.agent.inputs is not None)
        self.way = (
            "the factory is given the model of training"
            if takes_model(found)
            else "every rollout has a copy, all of whose llms ask the model in training"
        )
        return in_training(form, self._llm)

    def converse(self) -> Conversation:
        """Return a conversation with a new copy of the agent or crew."""
        from crewai import Agent, Crew

        from agentgym.plugins.crewai.copies import copied

        form = self._forms.of_episode()
        if not isinstance(form, Agent | Crew):
            return _FlowConversation(form(), self._models, self._inputs)
        talk = _CrewConversation if isinstance(form, Crew) else _AgentConversation
        return talk(copied(form), self._models, self._inputs)

    async def close(self) -> None:
        """Close the HTTP connections, and delete CrewAI's temporary storage."""
        await self._models.close()
        self._opened.close()


class _CrewAIConversation(Conversation):
    def __init__(
        self, runs: Any, models: GatewayModels, inputs: Callable[[Task], Any]
    ) -> None:
        self._runs = runs
        self._models = models
        self._given: Callable[[Task], Any] = inputs
        self._has_answered = False

    async def _kick_off(self, text: Any) -> Any:
        """Call ``kickoff(text)`` of the agent or crew in a thread; return its output.

        Returns None if the model's answer was empty. If a tool's exception or a limit
        ended the episode, raises it, although CrewAI has handled it.
        """
        from crewai.events import crewai_event_bus
        from crewai.tools.tool_failure import ToolExecutionFailedError

        from agentgym.plugins.crewai.gateway import require_running

        self._has_answered = True
        crewai_event_bus.reset_runtime_state()  # it would keep the agents of all runs
        output = None
        try:
            with self._models.answering():
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

    def _refused(self, inputs: Any, wanted: str) -> UsageError:
        return UsageError(
            f"--inputs {self._models.blueprint.agent.inputs} gave "
            f"{kind_of(inputs)}. "
            f"Return {wanted}."
        )


class _AgentConversation(_CrewAIConversation):
    """Runs an agent once per user message, each time with all messages so far."""

    _messages: Sequence[dict[str, Any]] = ()

    async def turn(self, message: str) -> str:
        text = None if self._has_answered else self._given(current_episode().task)
        if text is not None and not isinstance(text, str):
            raise self._refused(text, "the text of the agent's input")
        asked = [*self._messages, {"role": "user", "content": text or message}]
        output = await self._kick_off(asked)
        if output is None:
            return ""
        said = [m for m in output.messages if m["role"] != "system"]
        said[-1] = {**said[-1], "content": output.raw}  # CrewAI has stripped it
        self._messages = said
        return str(output.raw)


class _CrewConversation(_CrewAIConversation):
    """Runs a crew on its tasks, once: a crew cannot continue a conversation."""

    async def turn(self, message: str) -> str:
        output = await self._kick_off(self._inputs_of(message))
        return "" if output is None else str(output.raw)

    def _inputs_of(self, message: str) -> Any:
        if self._has_answered:
            raise UnsupportedError(
                "A Crew, Task or Flow of CrewAI answers once, and the scenario's user "
                "says more. Let the factory return an Agent, which can go on."
            )
        given = self._given(current_episode().task)
        if given is not None and not isinstance(given, Mapping):
            raise self._refused(given, "a dict, as kickoff(inputs=...) takes it")
        return self._placed(message, dict(given or {}))

    def _placed(self, message: str, given: dict[str, Any]) -> Any:
        return {"task": message, **given}


class _FlowConversation(_CrewConversation):
    """Runs a new flow, once; its answer is the result of its last method."""

    async def turn(self, message: str) -> str:
        output = await self._kick_off(self._inputs_of(message))
        return "" if output is None else text_of(getattr(output, "raw", output))

    def _placed(self, message: str, given: dict[str, Any]) -> Any:
        from agentgym.plugins.crewai.crews import flow_inputs

        return flow_inputs(self._runs, message, given)


class CrewAIAdapter(FrameworkAdapter):
    """Adapter for ``Agent``, ``Task``, ``Crew`` and ``Flow`` of CrewAI >= 1.15."""

    name = "crewai"
    preload = ("agentgym.plugins.crewai.preload",)
    packages = ("crewai", "crewai_tools")
    addressee = "coworker"

    def check(self) -> None:
        """Check that crewai is installed."""
        require(["crewai"], "crewai", "The CrewAI adapter")

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is an Agent, a Flow, or a Task or Crew with an agent."""
        self.check()
        from agentgym.plugins.crewai.crews import members

        members(agent, origin)

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a CrewAI tool to an AgentGym tool."""
        self.check()
        from crewai.tools import BaseTool

        from agentgym.plugins.crewai.tools import callable_tool

        if not isinstance(found, BaseTool):
            return super().tools_of(found)
        return [callable_tool(found)]

    def acts(self, value: Any) -> bool:
        """Return whether an object is a crew or a flow, or an agent with tools."""
        from agentgym.plugins.crewai.crews import acts

        return acts(value)

    def stand_in(self) -> Any:
        """Return a placeholder LLM, which is never called."""
        self.check()
        from agentgym.plugins.crewai.gateway import PlainLLM

        return PlainLLM.at("http://nowhere.invalid/v1", "none", "none")

    def gateway_model(self, models: GatewayModels) -> Any:
        """Return an LLM that sends its requests to the gateway."""
        from agentgym.plugins.crewai.gateway import GatewayLLM

        return GatewayLLM.of(models)

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

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an Agent, Task or Crew whose LLMs are all ``model``."""
        self.check()
        from agentgym.plugins.crewai.copies import with_model

        return with_model(agent, model)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent or crew; its model calls go to the gateway."""
        self.check()
        return CrewAIAgent(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a CrewAI object.

        It is a copy of the user's Agent, Task or Crew if that was trained, else a new
        Agent. ``options`` are the arguments of ``TrainedAgent.to_crewai``.
        """
        self.check()
        os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")  # else it asks users
        unset = {name: QUIET[name] for name in QUIET if name not in os.environ}
        with environment(**unset):
            from agentgym.plugins.crewai.export import export

            at = (options.pop(name, None) for name in ("base_url", "api_key"))
            model = partial(self.trained_model, trained, *at)
            return export(trained, model, **options)
