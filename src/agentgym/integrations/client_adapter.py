"""Base of adapters for frameworks whose models use OpenAI's client.

A framework has two classes. Its :class:`ClientAdapter` can be looked at without
importing the framework. Its :class:`ClientFramework`, in a module that imports the
framework, knows the framework's agents, tools and models.
"""

import asyncio
import json
import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    nullcontext,
)
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import httpx
from pydantic_core import to_jsonable_python

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.background import ThreadsInContext, in_background
from agentgym.core.task import Split
from agentgym.core.tools import Tool, ToolSpec, run_tool
from agentgym.errors import ScenarioError, UnsupportedError, UsageError
from agentgym.integrations.agent_import import (
    kind_of,
    load_agent,
    load_trained,
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
from agentgym.integrations.in_place import live_tool, runs_agent
from agentgym.integrations.redirect import (
    answering,
    clients_redirected_to,
    holding,
    model_for,
    watch,
)
from agentgym.integrations.registry import FRAMEWORKS, is_installed, require
from agentgym.integrations.transport import (
    PLACEHOLDER,
    EpisodePosts,
    client_of,
    sync_episode_client,
)
from agentgym.integrations.witness import saw
from agentgym.models.reference import served_name
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.schemas import model_of_schema
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.scenario import ToolScenario

if TYPE_CHECKING:
    from agentgym.integrations.plain_openai import PlainOpenAI

Run = Callable[[str | dict[str, Any], str | None], Coroutine[Any, Any, str]]
"""Runs a tool, and returns the text for the model. Takes the arguments, as JSON text or
parsed, and the call's id, which may be None."""

Settings = Blueprint | AgentSpec
"""Settings of a default agent: in training, and of one that is exported."""

_NOT_AN_OBJECT = "Error: the arguments are not a JSON object."
_MOST_TOOL_SETS = 64


class Servers:
    """Opens each MCP server at its first use, and closes all servers at the end.

    Each server has an asyncio task that opens and closes it, because the MCP package
    requires the same task for both. The task does not belong to an episode.
    """

    def __init__(self) -> None:
        self._opened: dict[int, tuple[Any, asyncio.Future[None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    async def open(
        self, server: Any, connection: AbstractAsyncContextManager[Any]
    ) -> None:
        """Open a server with ``connection``, unless an earlier call opens it.

        Return when the server is open. If it cannot be opened, all calls raise the same
        exception.
        """
        if id(server) not in self._opened:
            loop = asyncio.get_running_loop()
            opened: asyncio.Future[None] = loop.create_future()
            self._opened[id(server)] = server, opened
            holding = self._hold(connection, opened)
            self._tasks.append(loop.create_task(holding, context=Context()))
        await asyncio.shield(self._opened[id(server)][1])

    async def close(self) -> None:
        """Close all servers, even if some of them fail to close."""
        self._ending.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(
        self,
        connection: AbstractAsyncContextManager[Any],
        opened: "asyncio.Future[None]",
    ) -> None:
        try:
            async with connection:
                opened.set_result(None)
                await self._ending.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)


_SERVERS: ContextVar[Servers | None] = ContextVar("agentgym_servers", default=None)


def current_servers() -> Servers | None:
    """Return the servers that the current episode's worker keeps open, if any."""
    return _SERVERS.get()


class GatewayModels:
    """One model per framework, for all agents that run in a worker's episodes.

    An agent's code may run agents of other frameworks, e.g. in a tool. Their model
    calls go to the gateway too.

    Attributes:
        http: Client for requests to the gateway.
        sync_http: The sync version of ``http``.
        posts: Sends plain requests, faster than ``http``.
        servers: Keeps the agents' MCP servers open.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.posts = EpisodePosts(blueprint)
        self.http = client_of(self.posts)
        self.sync_http = sync_episode_client(blueprint)
        self.servers = Servers()
        self._made: dict[str, Any] = {}
        self._making = threading.RLock()
        watch()

    def of(self, framework: str) -> Any:
        """Return a framework's model, which is created at its first use."""
        with self._making:
            if framework not in self._made:
                adapter = FRAMEWORKS.get(framework)
                adapter.check()
                self._made[framework] = adapter.gateway_model(self)
            return self._made[framework]

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Replace the models of all agents and OpenAI clients within the block."""
        loop = asyncio.get_running_loop()
        if getattr(loop, "_default_executor", None) is None:  # a worker has set its own
            loop.set_default_executor(ThreadsInContext())
        with (
            answering(self.of),
            clients_redirected_to(self.blueprint),
            holding(_SERVERS, self.servers),
        ):
            yield

    async def close(self) -> None:
        """Close the connections, and the agents' MCP servers."""
        await self.servers.close()
        self.posts.close()
        self.sync_http.close()


@dataclass(frozen=True)
class TrainedEndpoint:
    """The place where OpenAI's clients ask a trained model.

    Attributes:
        model: The model's name in requests.
        temperature: Temperature of requests that do not set it.
        max_tokens: Token limit of requests that do not set it.
        transport: Answers all requests in this process; None if a server answers.
    """

    model: str
    temperature: float
    max_tokens: int
    transport: Any = None
    base_url: str = "http://policy.invalid/v1"
    api_key: str = "none"

    @classmethod
    def of(cls, trained: Trained, base_url: str | None, api_key: str | None) -> Self:
        """Return the server at ``base_url``; if None, load the weights here.

        The sampling options are those with which the agent was evaluated.
        """
        spec = trained.spec
        name, usual = spec.served_name, (spec.temperature, spec.max_tokens)
        if base_url is None:
            return cls(name, *usual, trained.transport())
        name = served_name(base_url, api_key, name)
        return cls(name, *usual, None, base_url, api_key or "none")

    def http(self) -> httpx.AsyncClient | None:
        """Return an HTTP client of the model in this process; None for a server."""
        if self.transport is None:
            return None
        return httpx.AsyncClient(transport=self.transport, timeout=None)

    def sync_http(self) -> httpx.Client | None:
        """Return the sync version of :meth:`http`."""
        if self.transport is None:
            return None
        return httpx.Client(transport=self.transport, timeout=None)


class ClientLoop(AgentLoop):
    """Runs agents; a worker's episodes share one agent per set of tools.

    If all tasks have the same tools, or the agent has its own, only one is built.

    Attributes:
        blueprint: The agent's settings, with the gateway's address.
        models: The models that replace those of the agents.
        model: The framework's model on the gateway.
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
        self._framework = adapter.framework
        self._inputs = values_for(source.inputs, "--inputs")
        self._context = values_for(source.context, "--context")
        self.models = GatewayModels(blueprint)
        self.model = self.models.of(adapter.name)
        origin = source.reference
        self.found = None if origin is None else load_agent(origin)
        self._differs = origin is None or takes_tools(self.found)
        self._others: OrderedDict[str, Any] = OrderedDict()
        self._usual = self._build(blueprint.tools)

    def _build(self, specs: list[ToolSpec]) -> Any:
        blueprint, adapter = self.blueprint, self._adapter
        tools = [self._framework.tool(spec, _in_episode(spec)) for spec in specs]
        origin = blueprint.agent.reference
        if origin is None:
            # One more than the episode's limit, which ends the agent with a reason.
            settings = replace(blueprint, max_turns=blueprint.max_turns + 1)
            agent = self._framework.default_agent("agent", self.model, tools, settings)
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
            self.members = self._framework.members(agent)
            self.notes = self._framework.notes(agent)
        return self._framework.prepared(agent, tools, self)

    def converse(self) -> Conversation:
        """Return a new conversation."""
        return self._framework.converse(self.of_episode(), self)

    def of_episode(self) -> Any:
        """Return the prepared agent with the tools of the current episode's task."""
        tools = current_episode().task_tools
        if not self._differs or tools == self.blueprint.tools:
            return self._usual
        key = json.dumps([tool.to_openai() for tool in tools])
        if key not in self._others:
            self._others[key] = self._build(tools)
            if len(self._others) > _MOST_TOOL_SETS:
                self._others.popitem(last=False)
        self._others.move_to_end(key)
        return self._others[key]

    def first_input(self) -> Any:
        """Return the value of ``--inputs`` for the current task; None if not set."""
        given = self._inputs(current_episode().task)
        if self._adapter.takes_any_input:
            return given
        if not isinstance(given, str | list | None):
            raise self.wrong_input(
                given,
                "the text of the agent's first message, or a list of "
                f"{self._adapter.title}'s messages",
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
        return self._context(current_episode().task)

    async def close(self) -> None:
        """Close the HTTP connections, and the agents' MCP servers."""
        await self.models.close()


class ClientConversation(Conversation):
    """Runs an agent once per message of the user.

    ``state`` is that of the conversation, e.g. a copy of the agent. Model calls of
    other agents in the agent's own code go to the gateway too.
    """

    def __init__(self, loop: ClientLoop, state: Any) -> None:
        self._loop = loop
        self._state = state
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


class ClientFramework(ABC):
    """A framework's agents, tools and models, in a module that imports it.

    Attributes:
        AGENTS: Classes of agents and teams.
        TOOLS: Classes of tools, and of sets of tools.
        MODEL: Class of models.
        BY_TEXT: Classes of agents that read their actions from the model's text.
        INSTEAD: Name of the class that calls tools instead.
        conversation: Class of conversations with an agent.
    """

    AGENTS: ClassVar[Any]
    TOOLS: ClassVar[Any]
    MODEL: ClassVar[Any]
    BY_TEXT: ClassVar[Any] = ()
    INSTEAD: ClassVar[str] = ""
    conversation: ClassVar[type[ClientConversation]]

    def patch(self) -> None:
        """Patch the framework, so that its models and tools can be replaced."""

    @abstractmethod
    def model(self, client: "PlainOpenAI", name: str) -> Any:
        """Return a model of the framework that sends its requests with ``client``."""

    @abstractmethod
    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a framework tool that has the schema ``spec`` and calls ``run``.

        The framework must not validate the arguments: AgentGym does.
        """

    @abstractmethod
    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        """Return the default agent, which is used if the user gives none.

        It gets the system prompt in ``settings``, and if it can have a limit on its
        model calls per message, also ``max_turns``.
        """

    @abstractmethod
    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent and of the agents that it runs, with ``model``."""

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> Any:
        """Prepare an agent for training, once; ``tools`` were given to its factory.

        All model calls of the framework go to ``loop.model`` in any case.
        """
        return agent

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a new conversation with an agent, as :meth:`prepared` returned it."""
        return self.conversation(loop, self.begin(agent))

    def begin(self, agent: Any) -> Any:
        """Return the state of a new conversation, e.g. a copy of the agent."""
        return agent

    def members(self, agent: Any) -> dict[str, Any]:
        """Return a team's agents that its messages may name, with their models."""
        return {}

    def notes(self, agent: Any) -> list[str]:
        """Return notes for the user on how an agent behaves in training."""
        return []

    def limited(self, agent: Any, max_turns: int) -> Any:
        """Return an exported agent that ends after so many model calls, if it can."""
        return agent

    def require(self, agent: Any, origin: str, wanted: str) -> None:
        """Raise UnsupportedError if an object is not an agent that calls tools."""
        if not isinstance(agent, self.AGENTS):
            raise UnsupportedError(
                f"{origin} gave {kind_of(agent)}, not an agent. Return {wanted}."
            )
        self.refuse_by_text(agent)

    def refuse_by_text(self, agent: Any) -> None:
        """Raise UnsupportedError if an agent reads its actions from text."""
        if isinstance(agent, self.BY_TEXT):
            raise UnsupportedError(
                f"{agent.name or 'It'} is a {type(agent).__name__}, which reads its "
                "actions from the model's text. Training is about tool calls: make it "
                f"a {self.INSTEAD}, which takes the same tools."
            )

    def acts(self, value: Any) -> bool:
        """Return whether an object is an agent that acts: it has tools, or others."""
        return isinstance(value, self.AGENTS)

    def function(self, tool: Any) -> Any:
        """Return the function that a tool calls; None if there is none."""
        return None

    def passes_control(self, tool: Any) -> bool:
        """Return whether a tool is an agent, runs one, or hands over to one."""
        return runs_agent(self.function(tool))

    def returned(self, tool: Any) -> Any:
        """Return the type of a tool's results; None if it is unknown."""
        return None

    def spec(self, tool: Any) -> ToolSpec:
        """Return a tool's name, description and schema."""
        raise NotImplementedError

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        """Run a tool outside of its agent, and return its result for the model."""
        raise NotImplementedError

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a tool, or a set of tools, to AgentGym tools."""

        async def run(arguments: dict[str, Any]) -> Any:
            return await self.run(found, arguments)

        return [live_tool(self.spec(found), run, self.returned(found))]

    def gateway_model(self, models: GatewayModels) -> Any:
        """Return a model that sends its requests to the gateway."""
        from agentgym.integrations.plain_openai import PlainOpenAI

        blueprint = models.blueprint
        url = blueprint.gateway + PLACEHOLDER
        sync = models.sync_http
        client = PlainOpenAI(url, blueprint.api_key, models.http, sync_http=sync)
        return self.model(client, blueprint.model)

    def trained_model(self, trained: Trained, at: TrainedEndpoint) -> Any:
        """Return a model that answers with a trained agent's weights."""
        from agentgym.integrations.plain_openai import PlainOpenAI

        sampling = {"temperature": at.temperature, "max_tokens": at.max_tokens}
        http, sync = at.http(), at.sync_http()
        client = PlainOpenAI(at.base_url, at.api_key, http, sampling, sync)
        return self.model(client, at.model)

    def bound(self, tool: Tool) -> Any:
        """Convert an AgentGym tool to one of the framework, for an exported agent."""
        return self.tool(tool.spec, _bound(tool))


class ClientAdapter(FrameworkAdapter):
    """An adapter of a framework whose models use OpenAI's client.

    Attributes:
        title: The framework's name in messages.
        extra: Name of the pip extra that installs the framework.
        modules: Modules that must be installed; the first is patched at its import.
        context_argument: Name of the framework's argument for the value of
            ``--context``; empty if it has none.
        takes_any_input: Whether ``--inputs`` may return types other than text and list.
        takes_graph_options: Whether it has the options of LangGraph's runs.
        copies_factories: Whether an exported agent whose factory takes the model is
            copied, too, because parts of it may have other models.
        agents: Name of the framework's agents in messages, e.g. ``an Agent of X``.
        models: Name of the framework's models in messages, e.g. ``a model of X``.
        inspector: The module with ``FRAMEWORK``, a :class:`ClientFramework`.
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

    @property
    def framework(self) -> ClientFramework:
        """The framework's own part; the framework is imported and patched first."""
        self.check()
        import_module(self.modules[0])
        found: ClientFramework = import_module(self.inspector).FRAMEWORK
        return found

    @classmethod
    def patch(cls, module: ModuleType) -> None:
        """Patch the framework, which was just imported."""
        if all(map(is_installed, cls.modules)):
            import_module(cls.inspector).FRAMEWORK.patch()

    def check(self) -> None:
        """Check that the framework is installed."""
        require(list(self.modules), self.extra, f"The {self.title} adapter")

    def require_agent(self, agent: Any, origin: str) -> None:
        """Raise UnsupportedError if an object is not an agent that calls tools."""
        self.framework.require(agent, origin, self.agents)

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a tool, or a set of tools, of the framework to AgentGym tools."""
        framework = self.framework
        if not isinstance(found, framework.TOOLS):
            return super().tools_of(found)
        return framework.tools_of(found)

    def acts(self, value: Any) -> bool:
        """Return whether an object is an agent of the framework that has tools."""
        return self.framework.acts(value)

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent that uses ``model``, as do the agents it runs."""
        self.require_agent(agent, repr(agent))
        if not isinstance(model, self.framework.MODEL):
            kind = type(model).__name__
            raise UnsupportedError(f"A {kind} is not {self.models}.")
        watch()
        return self.framework.on_model(agent, model)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent; its model calls go to the gateway."""
        self.check()
        return ClientLoop(self, blueprint)

    def gateway_model(self, models: GatewayModels) -> Any:
        """Return a model of this framework that sends its requests to the gateway."""
        return self.framework.gateway_model(models)

    def stand_in(self) -> Any:
        """Return a placeholder model, which is never called."""
        framework = self.framework
        from agentgym.integrations.plain_openai import PlainOpenAI

        return framework.model(PlainOpenAI("http://nowhere.invalid/v1", "none"), "none")

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as an agent of the framework.

        ``options`` are the arguments of the export method, e.g.
        ``TrainedAgent.to_autogen``.
        """
        framework, spec = self.framework, trained.spec
        found, origin, tools = self._agent_and_tools(
            trained, options.get("agent"), options.get("tools")
        )
        server = options.get("base_url"), options.get("api_key")
        model = self.trained_model(trained, *server)
        if found is None:
            name = re.sub(r"\W|^(?=\d)", "_", spec.served_name)
            made = framework.default_agent(name, model, tools, spec)
        else:
            made = make(found, origin, llm=model, tools=tools)
            self.require_agent(made, origin)
            if not takes_model(found) or self.copies_factories:
                return self.with_model(made, model)
        return framework.limited(made, spec.max_turns)

    def trained_model(
        self, trained: Trained, base_url: str | None = None, api_key: str | None = None
    ) -> Any:
        """Return a model that answers with a trained agent's weights."""
        framework = self.framework
        at = TrainedEndpoint.of(trained, base_url, api_key)
        return framework.trained_model(trained, at)

    def _agent_and_tools(
        self, trained: Trained, agent: Any, tools: Sequence[Any] | None
    ) -> tuple[Any, str, list[Any]]:
        """Return the agent or factory to export, its name for messages, and its tools.

        The agent is ``agent``, or the agent that was trained; None for the scenario's
        default agent. The tools are empty for an agent with its own tools. Otherwise
        they are ``tools``, or the scenario's tools.
        """
        export = f"to_{self.name}"
        named = trained.spec.agent if agent is None else agent
        found = None if named is None else load_trained(trained, agent, export)
        origin = named if isinstance(named, str) else type(named).__name__
        if found is None or takes_tools(found):
            if tools is not None:
                return found, origin, list(tools)
            examples = _examples(trained, export)
            return found, origin, [*map(self.framework.bound, examples)]
        if tools is not None:
            raise UsageError(
                f"{origin} has its own tools: leave tools={tools!r} out, or give a "
                "function make_agent(llm, tools) as agent=."
            )
        return found, origin, []


def _examples(trained: Trained, export: str) -> list[Tool]:
    """Return the scenario's tools, bound to the environment of an example task."""
    try:
        scenario = get_scenario(trained.scenario)
    except (UsageError, ScenarioError) as error:
        raise UsageError(
            f"The tools of {trained.spec.scenario!r} cannot be had: {error} Give your "
            f"own with {export}(tools=[...])."
        ) from error
    if isinstance(scenario, ToolScenario):
        raise UsageError(
            f"The tools of {scenario.name!r} are your own, and in training they did "
            f"not run: give them with {export}(tools=[...])."
        )
    if not scenario.tools():
        raise UsageError(
            f"Each task of {scenario.name!r} has tools of its own, so the trained "
            f"agent keeps none: give yours with {export}(tools=[...])."
        )
    [task] = make_tasks(scenario, Split.TEST, seed=0, count=1)
    return scenario.create_environment(task).tools()


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


UNREADABLE = "__arguments__"
"""Key of the arguments of a call that are not a JSON object, with their text."""


def spec_of(
    name: str,
    description: str | None,
    schema: Mapping[str, Any],
    read: Callable[[dict[str, Any]], Any] | None = None,
) -> ToolSpec:
    """Return the spec of a tool; ``read`` is the framework's own validation."""
    arguments = model_of_schema(name, dict(schema), read)
    return ToolSpec(name, description or "", arguments)


def asking(framework: str, model: Any, ours: type) -> AbstractContextManager[None]:
    """Let agents that a tool runs use ``model``, if it is that of a trained agent."""
    is_trained = isinstance(model, ours) and episode_or_none() is None
    return answering({framework: model}.get) if is_trained else nullcontext()


def patch_model_of(kind: Any, framework: str, known: ClientFramework) -> None:
    """Patch the attribute ``model`` of agents, so that it can be replaced."""

    def model(self: Any) -> Any:
        own = vars(self)["model"]
        other = model_for(framework, is_call=False, instead=own)
        if other is None:
            return own
        known.refuse_by_text(self)
        return other.as_role(self.name)

    kind.model = property(model, lambda self, model: vars(self).update(model=model))
