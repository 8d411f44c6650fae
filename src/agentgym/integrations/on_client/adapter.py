"""ClientAdapter: base of adapters for frameworks whose models use OpenAI's client."""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import to_jsonable_python

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.background import in_background
from agentgym.core.task import Task
from agentgym.core.tools import Tool, ToolSpec, run_tool
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
from agentgym.integrations.episode import current_episode, episode_or_none
from agentgym.integrations.export import TrainedEndpoint, agent_and_tools
from agentgym.integrations.gateway_models import GatewayModels
from agentgym.integrations.redirect import watch
from agentgym.integrations.registry import require
from agentgym.integrations.tool_sets import ToolSets
from agentgym.integrations.transport import PLACEHOLDER
from agentgym.integrations.witness import saw

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Run = Callable[[str | dict[str, Any], str | None], Coroutine[Any, Any, str]]
"""Runs a tool, and returns the text for the model. Takes the arguments, as JSON text or
parsed, and the call's id, which may be None."""

_NOT_AN_OBJECT = "Error: the arguments are not a JSON object."


class ClientLoop(AgentLoop):
    """Runs agents; a worker's episodes share one agent per set of tools.

    Attributes:
        blueprint: The agent's settings, with the gateway's address.
        models: The models that replace those of the agents.
        servers: Keeps the agents' MCP servers open.
        model: The model on the gateway.
        found: The user's agent or factory; None for the default agent.
    """

    def __init__(self, adapter: "ClientAdapter", blueprint: Blueprint) -> None:
        source = blueprint.agent
        if not adapter.context_argument:
            refuse_context(blueprint, adapter.title)
        if not adapter.takes_graph_options:
            refuse_graph_options(blueprint, adapter.title)
        self.blueprint = blueprint
        self._adapter = adapter
        self._inputs = values_for(source.inputs, "--inputs")
        self._context = values_for(source.context, "--context")
        self.models = GatewayModels(blueprint)
        self.servers = self.models.servers
        self.model = self.models.of(adapter.name)
        origin = source.reference
        self.found = None if origin is None else load_agent(origin)
        differs = origin is None or takes_tools(self.found)
        self._agents = ToolSets(blueprint.tools, self._build, differs=differs)

    def _build(self, specs: list[ToolSpec]) -> Any:
        blueprint, adapter = self.blueprint, self._adapter
        tools = [adapter.tool(spec, _in_episode(spec)) for spec in specs]
        origin = blueprint.agent.reference
        if origin is None:
            # One more than the episode's limit, which ends the agent with a reason.
            settings = replace(blueprint, max_turns=blueprint.max_turns + 1)
            agent = adapter.default_agent("agent", self.model, tools, settings)
        else:
            agent = make(self.found, origin, llm=self.model, tools=tools)
            adapter.require_agent(agent, origin)
            self.way = (
                "the factory is given the model of training"
                if takes_model(self.found)
                else "each run of its agents asks the model in training"
            )
        if self.agent is None:
            self.agent = agent
            self.members, self.notes = adapter.members(agent), adapter.notes(agent)
        return adapter.prepared(agent, tools, self)

    def converse(self) -> Conversation:
        """Return a new conversation."""
        return self._adapter.converse(self.of_episode(), self)

    def of_episode(self) -> Any:
        """Return the prepared agent with the tools of the current episode's task."""
        return self._agents.of_episode()

    def first_input(self) -> Any:
        """Return the value of ``--inputs`` for the current task; None if not set."""
        given = self._inputs(current_episode().task)
        if self._adapter.takes_any_input:
            return given
        if not isinstance(given, str | list | None):
            title = self._adapter.title
            raise self.wrong_input(
                given,
                f"the text of the agent's first message, or a list of {title}'s "
                "messages",
            )
        return given or None

    def wrong_input(self, given: Any, wanted: str) -> UsageError:
        """Return the error for a value of ``--inputs`` that an agent cannot take."""
        return UsageError(
            f"--inputs {self.blueprint.agent.inputs} gave {kind_of(given)}. "
            f"Return {wanted}."
        )

    def context(self) -> Any:
        """Return the value of ``--context`` for the current task; None if not set."""
        task: Task = current_episode().task
        return self._context(task)

    async def close(self) -> None:
        """Close the HTTP connections, and the agents' MCP servers."""
        await self.models.close()


class ClientConversation(Conversation):
    """Runs an agent once per message of the user.

    Model calls of other agents in the agent's own code go to the gateway too.
    """

    def __init__(self, loop: ClientLoop) -> None:
        self._loop = loop
        self._has_begun = False

    async def turn(self, message: str) -> str:
        """Run the agent on a message of the user, and return its answer."""
        given = None if self._has_begun else self._loop.first_input()
        asked = self.asked(message, given)
        self._has_begun = True
        with self._loop.models.answering():
            return await self.answer(asked)

    def asked(self, message: str, given: Any) -> Any:
        """Return the agent's input: ``given``, the value of ``--inputs``, if any."""
        return message if given is None else given

    @abstractmethod
    async def answer(self, asked: Any) -> str:
        """Run the agent on its input, and return its answer."""


class ClientAdapter(FrameworkAdapter):
    """An adapter of a framework whose models use OpenAI's client.

    Attributes:
        title: The framework's name in messages.
        extra: Name of the pip extra that installs the framework.
        modules: Modules that must be installed.
        context_argument: Name of the framework's argument for the value of
            ``--context``; empty if it has none.
        takes_any_input: Whether ``--inputs`` may return types other than text and list.
        takes_graph_options: Whether it has the options of LangGraph's runs.
        copies_factories: Whether an exported agent whose factory takes the model is
            copied, too, because parts of it may have other models.
        agents: Name of the framework's agents in messages, e.g. ``an Agent of X``.
        models: Name of the framework's models in messages, e.g. ``a model of X``.
        inspector: The module with the framework's classes: ``AGENTS``, ``TOOLS`` (tools
            and sets of them) and ``MODEL``; and the functions ``tools_of`` and
            ``acts``, as in :class:`FrameworkAdapter`.
    """

    title: ClassVar[str]
    extra: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    context_argument: ClassVar[str] = ""
    takes_any_input: ClassVar[bool] = False
    takes_graph_options: ClassVar[bool] = False
    copies_factories: ClassVar[bool] = False
    agents: ClassVar[str]
    models: ClassVar[str]
    inspector: ClassVar[str]

    @abstractmethod
    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a model of the framework that sends its requests with ``client``."""

    @abstractmethod
    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a framework tool that has the schema ``spec`` and calls ``run``.

        The framework must not validate the arguments: AgentGym does.
        """

    @abstractmethod
    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which is used if the user gives none.

        It gets the system prompt in ``settings``, and if it can have a limit on its
        model calls per message, also ``max_turns``.
        """

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> Any:
        """Prepare an agent for training, once; ``tools`` were given to its factory.

        All model calls of the framework go to ``loop.model`` in any case.
        """
        return agent

    @abstractmethod
    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a new conversation with an agent, as :meth:`prepared` returned it."""

    def members(self, agent: Any) -> dict[str, Any]:
        """Return a team's agents that its messages may name, with their models."""
        return {}

    def notes(self, agent: Any) -> list[str]:
        """Return notes for the user on how an agent behaves in training."""
        return []

    @abstractmethod
    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent and of the agents that it runs, with ``model``."""

    def describe(self) -> ModuleType:
        """Import and return :attr:`inspector`."""
        return import_module(self.inspector)

    def check(self) -> None:
        """Check that the framework is installed."""
        require(list(self.modules), self.extra, f"The {self.title} adapter")

    def require_agent(self, agent: Any, origin: str) -> None:
        """Raise UnsupportedError if an object is not an agent of the framework."""
        self.check()
        if not isinstance(agent, self.describe().AGENTS):
            raise UnsupportedError(
                f"{origin} gave {kind_of(agent)}, not an agent. Return {self.agents}."
            )

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a tool, or a set of tools, of the framework to AgentGym tools."""
        self.check()
        describe = self.describe()
        if not isinstance(found, describe.TOOLS):
            return super().tools_of(found)
        tools: list[Tool] = describe.tools_of(found)
        return tools

    def acts(self, value: Any) -> bool:
        """Return whether an object is an agent of the framework that has tools."""
        found: bool = self.describe().acts(value)
        return found

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent that uses ``model``, as do the agents it runs."""
        self.require_agent(agent, repr(agent))
        if not isinstance(model, self.describe().MODEL):
            kind = type(model).__name__
            raise UnsupportedError(f"A {kind} is not {self.models}.")
        watch()
        return self.on_model(agent, model)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent; its model calls go to the gateway."""
        self.check()
        return ClientLoop(self, blueprint)

    def gateway_model(self, models: GatewayModels) -> Any:
        """Return a model of this framework that sends its requests to the gateway."""
        from agentgym.integrations.on_client.clients import PlainOpenAI

        blueprint = models.blueprint
        url = blueprint.gateway + PLACEHOLDER
        sync = models.sync_http
        client = PlainOpenAI(url, blueprint.api_key, models.http, sync_http=sync)
        return self.model(client, blueprint.model)

    def stand_in(self) -> Any:
        """Return a placeholder model, which is never called."""
        self.check()
        from agentgym.integrations.on_client.clients import PlainOpenAI

        return self.model(PlainOpenAI("http://nowhere.invalid/v1", "none"), "none")

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as an agent of the framework.

        ``options`` are the arguments of the export method, e.g.
        ``TrainedAgent.to_autogen``.
        """
        self.check()
        found, origin, tools = agent_and_tools(
            trained,
            f"to_{self.name}",
            self.bound,
            agent=options.get("agent"),
            tools=options.get("tools"),
        )
        model = self.trained_model(
            trained, options.get("base_url"), options.get("api_key")
        )
        spec = trained.spec
        if found is None:
            name = re.sub(r"\W|^(?=\d)", "_", spec.served_name)
            made = self.default_agent(name, model, tools, spec)
        else:
            made = make(found, origin, llm=model, tools=tools)
            self.require_agent(made, origin)
            if not takes_model(found) or self.copies_factories:
                return self.with_model(made, model)
        return self.limited(made, spec.max_turns)

    def limited(self, agent: Any, max_turns: int) -> Any:
        """Return an exported agent that ends after so many model calls, if it can."""
        return agent

    def bound(self, tool: Tool) -> Any:
        """Convert an AgentGym tool to one of the framework, for an exported agent."""
        return self.tool(tool.spec, _bound(tool))

    def trained_model(
        self, trained: Trained, base_url: str | None = None, api_key: str | None = None
    ) -> Any:
        """Return a model that answers with a trained agent's weights."""
        from agentgym.integrations.on_client.clients import PlainOpenAI

        at = TrainedEndpoint.of(trained, base_url, api_key)
        sampling = {"temperature": at.temperature, "max_tokens": at.max_tokens}
        http, sync = at.http(), at.sync_http()
        client = PlainOpenAI(at.base_url, at.api_key, http, sampling, sync)
        return self.model(client, at.model)


def left_out(tool: Any) -> None:
    """Note that a tool is left out: a provider's servers run it."""
    kind = tool.get("type") if isinstance(tool, dict) else tool
    kind = kind if isinstance(kind, str) else type(tool).__name__
    saw(
        note=f"{kind} is left out, in training and in the trained agent: it runs by "
        "its provider's own models."
    )


def text_of(output: Any) -> str:
    """Return an agent's output as text; convert objects to JSON."""
    if isinstance(output, str):
        return output
    return json.dumps(to_jsonable_python(output, fallback=str))


def run_sync[T](work: Coroutine[Any, Any, T]) -> T:
    """Run a tool's coroutine from sync code: in an episode, on the episode's loop."""
    episode = episode_or_none()
    return in_background(work) if episode is None else episode.run_sync(work)


def _in_episode(spec: ToolSpec) -> Run:
    async def run(arguments: str | dict[str, Any], call_id: str | None) -> str:
        episode = current_episode()
        return await episode.use_tool(spec.name, arguments, call_id=call_id)

    return run


def _bound(tool: Tool) -> Run:
    async def run(arguments: str | dict[str, Any], call_id: str | None) -> str:
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError:
                return _NOT_AN_OBJECT
        if not isinstance(arguments, dict):
            return _NOT_AN_OBJECT
        _, text = await run_tool({tool.spec.name: tool}, tool.spec.name, arguments)
        return text

    return run
