"""Parts of the adapters of LlamaIndex, smolagents, Strands and Google ADK."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import Conversation
from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.on_client.adapter import (
    ClientAdapter,
    ClientConversation,
    ClientLoop,
)
from agentgym.integrations.on_client.in_place import live_tool, runs_agent
from agentgym.integrations.redirect import answering, model_for
from agentgym.integrations.registry import is_installed
from agentgym.scenarios.schemas import model_of_schema

if TYPE_CHECKING:
    from agentgym.integrations.on_client.clients import PlainOpenAI


class Reader(ABC):
    """Reads the tools of a framework's agents.

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
    def function(self, tool: Any) -> Any:
        """Return the function that a tool calls; None if there is none."""

    @abstractmethod
    def spec(self, tool: Any) -> ToolSpec:
        """Return a tool's name, description and schema."""

    @abstractmethod
    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        """Run a tool outside of its agent, and return its result for the model."""

    def acts(self, value: Any) -> bool:
        """Return whether an object is an agent."""
        return isinstance(value, self.AGENTS)

    def passes_control(self, tool: Any) -> bool:
        """Return whether a tool is an agent, or runs one."""
        return runs_agent(self.function(tool))

    def refuse_by_text(self, agent: Any) -> None:
        """Raise UnsupportedError if an agent reads its actions from text."""
        if isinstance(agent, self.BY_TEXT):
            raise UnsupportedError(
                f"{agent.name or 'It'} is a {type(agent).__name__}, which reads its "
                "actions from the model's text. Training is about tool calls: make it "
                f"a {self.INSTEAD}, which takes the same tools."
            )

    def tools_of(self, tool: Any) -> list[Tool]:
        """Convert a tool to an AgentGym tool."""

        async def run(arguments: dict[str, Any]) -> Any:
            return await self.run(tool, arguments)

        return [live_tool(self.spec(tool), run)]


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

    @property
    def parts(self) -> Any:
        """The module ``inspector``; its framework is imported and patched first."""
        import_module(self.modules[0])
        return import_module(self.inspector)

    def describe(self) -> Any:
        """Import the framework, and return its reader."""
        return self.parts.READER

    def require_agent(self, agent: Any, origin: str) -> None:
        """Raise UnsupportedError if an object is not an agent that calls tools."""
        super().require_agent(agent, origin)
        self.describe().refuse_by_text(agent)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a new conversation with ``agent``."""
        return ReadingConversation(self, agent, loop)

    @abstractmethod
    def begin(self, agent: Any) -> Any:
        """Return the state of a conversation, with a copy of the agent."""

    @abstractmethod
    async def answer(self, state: Any, asked: Any) -> str:
        """Run an agent on a message of the user, and return its answer."""

    @classmethod
    def patch(cls, module: ModuleType) -> None:
        """Patch the framework, which was just imported."""
        if all(map(is_installed, cls.modules)):
            import_module(cls.inspector).patch()


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


def patch_model_of(kind: Any, framework: str, reader: Reader) -> None:
    """Patch the attribute ``model`` of agents, so that it can be replaced."""

    def model(self: Any) -> Any:
        own = vars(self)["model"]
        other = model_for(framework, is_call=False, instead=own)
        if other is None:
            return own
        reader.refuse_by_text(self)
        return other.as_role(self.name)

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
