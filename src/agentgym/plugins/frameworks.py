"""Parts of the adapters of LlamaIndex, smolagents, Strands and Google ADK."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from agentgym.core.background import call_in_thread
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import AgentRole, Conversation
from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.on_client.adapter import (
    ClientAdapter,
    ClientConversation,
    ClientLoop,
)
from agentgym.integrations.on_client.in_place import (
    CallInPlace,
    agents_in,
    ending_episode,
    episode_of_call,
    live_tool,
)
from agentgym.integrations.redirect import answering, model_for
from agentgym.integrations.registry import is_installed
from agentgym.scenarios.schemas import distinct, model_of_schema

if TYPE_CHECKING:
    from agentgym.integrations.on_client.clients import PlainOpenAI


class Reader(ABC):
    """Reads prompts, tools and models of a framework's agents.

    Attributes:
        AGENTS: Classes of agents and teams.
        TOOLS: Class of tools.
        MODEL: Class of models.
        BY_TEXT: Classes of agents that read their actions from the model's text.
        INSTEAD: Name of the class that calls tools instead.
    """

    AGENTS: ClassVar[Any]
    TOOLS: ClassVar[Any]
    MODEL: ClassVar[Any]
    BY_TEXT: ClassVar[Any] = ()
    INSTEAD: ClassVar[str] = ""

    @abstractmethod
    def inner(self, agent: Any) -> Iterable[Any]:
        """Return the agents that are parts of an agent or a team."""

    @abstractmethod
    def role(self, agent: Any) -> AgentRole | None:
        """Return an agent's description without its tools; None for a bare team."""

    @abstractmethod
    def tools(self, agent: Any) -> Iterable[Any]:
        """Return the tools of an agent that are not those of the framework."""

    @abstractmethod
    def function(self, tool: Any) -> Any:
        """Return the function that a tool calls; None if there is none."""

    @abstractmethod
    def spec(self, tool: Any) -> ToolSpec:
        """Return a tool's name, description and schema."""

    @abstractmethod
    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        """Run a tool outside of its agent, and return its result for the model."""

    def hand_offs(self, team: Any, agent: Any) -> list[ToolSpec]:
        """Return the tools with which an agent hands over to others of its team."""
        return []

    def concerns(self, agent: Any) -> list[str]:
        """Return notes on parts of an agent that training changes or leaves out."""
        return []

    def agents_of(self, tool: Any) -> list[Any]:
        """Return the agents with tools that a tool's function runs."""
        return [*agents_in(self.function(tool), self.AGENTS, lambda agent: True)]

    def members(self, agent: Any) -> list[Any]:
        """Return an agent, the agents that are its parts, and those its tools run."""
        found = [agent]
        for each in found:  # grows
            tools = map(self.agents_of, self.tools(each))
            for inner in (*self.inner(each), *chain.from_iterable(tools)):
                found += [inner] if all(inner is not x for x in found) else []
        return [each for each in found if self.role(each) is not None]

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return a description of each member."""
        found = []
        for each in self.members(agent):
            role = self.role(each)
            assert role is not None
            role.tools.extend(self.spec(tool) for tool in self.tools(each))
            role.tools.extend(self.hand_offs(agent, each))
            found.append(role)
        return found

    def own_tools(self, found: Any) -> list[Tool]:
        """Convert the tools of an agent or team, or one tool, to AgentGym tools."""
        if isinstance(found, self.TOOLS):
            return [self._own_tool(found)]
        tools = (tool for each in self.members(found) for tool in self.tools(each))
        return distinct(self._own_tool(x) for x in tools if not self.agents_of(x))

    def _own_tool(self, tool: Any) -> Tool:
        async def run(arguments: dict[str, Any]) -> Any:
            return await self.run(tool, arguments)

        return live_tool(self.spec(tool), run)


def spec_of(
    name: str,
    description: str,
    schema: dict[str, Any],
    read: Callable[[dict[str, Any]], Any] | None = None,
) -> ToolSpec:
    """Return the spec of a tool; ``read`` is the framework's own validation."""
    return ToolSpec(name, description, model_of_schema(name, schema, read))


class ReadingConversation(ClientConversation):
    """Runs an agent once per message, with the state that its adapter has made."""

    def __init__(self, adapter: "ReadingAdapter", agent: Any, loop: ClientLoop) -> None:
        super().__init__(loop)
        self._adapter = adapter
        self._state = adapter.begin(agent)

    async def answer(self, asked: Any) -> str:
        """Run the agent on a message, and return its answer."""
        return await self._adapter.answer(self._state, asked)


class ReadingAdapter(ClientAdapter):
    """A ClientAdapter whose module ``inspector`` has a :class:`Reader`, READER."""

    def describe(self) -> Any:
        """Import the framework, and return its reader."""
        return import_module(self.inspector).READER

    def require_agent(self, agent: Any, origin: str) -> None:
        """Raise UnsupportedError if an object is not an agent that calls tools."""
        super().require_agent(agent, origin)
        reader = self.describe()
        for each in reader.members(agent):
            if isinstance(each, reader.BY_TEXT):
                raise UnsupportedError(
                    f"{origin} has a {type(each).__name__}, which reads its actions "
                    "from the model's text. Training is about tool calls: make it a "
                    f"{reader.INSTEAD}, which takes the same tools."
                )

    def in_training(
        self, agent: Any, model: Any
    ) -> Callable[[ClientLoop], Conversation]:
        """Return a function that starts a conversation with ``agent``."""
        return partial(ReadingConversation, self, agent)

    @abstractmethod
    def begin(self, agent: Any) -> Any:
        """Return the state of a conversation, with a copy of the agent."""

    @abstractmethod
    async def answer(self, state: Any, asked: Any) -> str:
        """Run an agent on a message of the user, and return its answer."""

    def patch(self, module: ModuleType) -> None:
        """Patch the framework, which was just imported."""
        if all(map(is_installed, self.modules)):
            import_module(self.inspector).patch()


def sync_client(client: "PlainOpenAI") -> Any:
    """Return the sync version of a client."""
    from openai import OpenAI

    from agentgym.integrations.on_client.clients import prepared

    class Plain(OpenAI):
        def _prepare_options(self, options: Any) -> Any:
            return prepared(options, client.defaults)

    key, http = client.api_key, client.sync_http
    return Plain(base_url=client.base_url, api_key=key, max_retries=0, http_client=http)


def asking(framework: str, model: Any, ours: type) -> AbstractContextManager[None]:
    """Let agents that a tool runs use ``model``, if it is that of a trained agent."""
    is_trained = isinstance(model, ours) and episode_or_none() is None
    return answering({framework: model}.get) if is_trained else nullcontext()


def patch_model_of(kind: Any, framework: str) -> None:
    """Patch the attribute ``model`` of agents, so that it can be replaced."""

    def model(self: Any) -> Any:
        other = model_for(framework, is_call=False)
        return vars(self)["model"] if other is None else other.as_role(self.name)

    kind.model = property(model, lambda self, model: vars(self).update(model=model))


def within(
    enter: Callable[[Any], AbstractContextManager[None]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a patch of an async method: it runs within ``enter`` of its object."""

    def patch(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        async def routed(self: Any, *args: Any, **named: Any) -> Any:
            with enter(self):
                return await method(self, *args, **named)

        return routed

    return patch


def called_sync(
    name: str,
    arguments: str | dict[str, Any],
    run: Callable[[], Any],
    answer: Callable[[str], Any],
    passes_control: Callable[[], Any],
    **how: Any,
) -> Any:
    """Call a tool: the episode's, if it has one of this name, else the agent's own.

    ``run`` runs the agent's own tool. ``answer`` converts the text that the episode
    answers to a result of the framework. ``how`` are arguments of `CallInPlace`.
    """

    def contained() -> Any:
        try:
            return run()
        except SystemExit as end:  # a thread cannot pass it on
            return end

    async def in_thread(_: Any) -> Any:
        found = await call_in_thread(contained)
        if isinstance(found, SystemExit):
            raise found
        return found

    if (episode := episode_of_call(name, passes_control)) is None:
        with ending_episode(name):
            return run()
    call = CallInPlace(name, in_thread, **how)
    with call.running():
        text = episode.use_tool_sync(name, arguments)  # type: ignore[arg-type]
    result = call.result(text)
    return answer(text) if result is text else result


async def called(
    name: str,
    arguments: str | dict[str, Any],
    run: Callable[[], Awaitable[Any]],
    answer: Callable[[str], Any],
    passes_control: Callable[[], Any],
    *,
    call_id: str | None = None,
    **how: Any,
) -> Any:
    """Call a tool as :func:`called_sync` does; ``run`` is async."""
    if (episode := episode_of_call(name, passes_control)) is None:
        with ending_episode(name):
            return await run()
    call = CallInPlace(name, lambda _: run(), **how)
    with call.running():
        text = await episode.use_tool(name, arguments, call_id=call_id)
    result = call.result(text)
    return answer(text) if result is text else result
