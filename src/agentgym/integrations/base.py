"""FrameworkAdapter: the interface between AgentGym and an agent framework."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from agentgym.core.agent import AgentSource, Trained
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, UsageError


@dataclass(frozen=True)
class Blueprint:
    """The settings from which a worker builds its agent.

    Attributes:
        system_prompt: The agent's role and rules.
        tools: Schemas of the tools that every task has. A call runs the tool of the
            current episode. Empty if each task has its own tools.
        max_turns: Maximum number of model calls of each agent in an episode, over all
            user messages.
        gateway: Base URL of the gateway, without a path. The gateway is AgentGym's HTTP
            server that passes model calls to the policy and records them.
        api_key: API key for the gateway; it only allows model calls.
        model: The policy's name in model calls.
        connections: Maximum number of simultaneous requests to the gateway.
        agent: The settings of the user's agent. If ``agent.reference`` is None, the
            framework's default agent is used.
    """

    system_prompt: str
    tools: list[ToolSpec]
    max_turns: int
    gateway: str
    api_key: str
    model: str
    connections: int
    agent: AgentSource = field(default_factory=AgentSource)


def refuse_graph_options(blueprint: Blueprint, framework: str) -> None:
    """Refuse ``--configurable`` and ``--on-interrupt``, which only LangGraph takes."""
    if blueprint.agent.on_interrupt is not None:
        raise UsageError(
            f"--on-interrupt {blueprint.agent.on_interrupt} is for the interrupt() of "
            f"LangGraph, which {framework} does not have. Leave the option out."
        )
    if blueprint.agent.configurable:
        keys = ", ".join(blueprint.agent.configurable)
        raise UsageError(
            f"--configurable {keys}: {framework} has no "
            "configurable keys, LangGraph has. Give --inputs for an agent's input."
        )


def refuse_context(blueprint: Blueprint, framework: str) -> None:
    """Raise if ``--context`` is set, for frameworks that have no runtime context."""
    if blueprint.agent.context is not None:
        raise UsageError(
            f"--context {blueprint.agent.context}: {framework} has no runtime context. "
            "Give --inputs to change the agent's input."
        )


class Conversation(ABC):
    """One episode's conversation between the user and an agent."""

    @abstractmethod
    async def turn(self, message: str) -> str:
        """Send the agent one message of the user, and return the agent's answer.

        The first message is the task, and each later one continues the conversation.
        Earlier messages must stay unchanged: the exact tokens of a turn can only be
        trained if the next prompt begins with these tokens. Model calls go through the
        HTTP clients of :mod:`agentgym.integrations.transport`. Tool calls go to the
        :func:`current_episode`, which also counts turns and ends stuck episodes.

        Raises:
            EpisodeCut: The agent has used up its model calls.
            Exception: The agent crashed; the rollout is then retried. After a limit has
                ended the episode, any exception is ignored.
        """

    def add_tools(self) -> None:
        """Offer the agent the tools that the environment added since the last turn.

        Raises:
            UnsupportedError: The agent cannot take new tools.
        """
        raise UnsupportedError(
            "This task adds tools while its conversation goes on, and this agent is "
            "built with its tools. Take the native agent or LangChain's: --framework "
            "native."
        )

    async def close(self) -> None:
        """Release the conversation's resources."""


class AgentLoop(ABC):
    """An agent that is built once, and runs many episodes at a time.

    Attributes:
        agent: The framework's agent object, for inspection; None if there is none.
        way: A phrase for messages that says how training replaces the agent's model.
        notes: Sentences for the user on how the agent behaves differently in training.
        members: The agents of a team that messages may name, with their models; empty
            if requests show them.
    """

    agent: Any = None
    way: str = "built on the model of training"
    notes: Sequence[str] = ()
    members: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def converse(self) -> Conversation:
        """Return a new conversation, independent of others.

        The conversation offers the agent the tools of the current episode's task:
        ``current_episode().task_tools``.
        """

    async def close(self) -> None:
        """Release the agent's resources."""


class FrameworkAdapter(ABC):
    """Builds, inspects and exports agents of one framework.

    Attributes:
        name: The framework's name for ``--framework``.
        preload: Modules that every worker needs, imported once before workers start.
        packages: Top-level packages that define the framework's agents and tools.
        addressee: In frameworks whose teams have one tool to call any agent, the name
            of the tool's argument for the agent, e.g. ``coworker``; else empty.
        runs_tools: Whether the agent's own code runs all tools. Then no tool acts on
            the episode's environment.
        fills_placeholders: Whether each task's input fills placeholders in the agent's
            texts, e.g. ``{topic}``. A factory's required texts then get placeholders.
    """

    name: ClassVar[str]
    preload: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    addressee: ClassVar[str] = ""
    runs_tools: ClassVar[bool] = False
    fills_placeholders: ClassVar[bool] = False

    def owns(self, root: str) -> bool:
        """Return whether a top-level module is one of :attr:`packages`."""
        return root in self.packages

    @abstractmethod
    def check(self) -> None:
        """Check that the framework is installed, without importing it.

        Raises:
            MissingExtraError: It is not installed; the message has the install command.
        """

    def check_reference(self, reference: str | None) -> None:
        """Check that this framework can train the agent in the settings.

        Args:
            reference: ``module:name``, or a program's command; None for the default
                agent, which most frameworks have.

        Raises:
            UnsupportedError: The framework cannot train this agent.
        """

    @abstractmethod
    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent with the gateway as its model, and the episode's tools.

        The gateway (``blueprint.gateway``) passes model calls to the policy.

        Raises:
            UsageError: The user's factory cannot be imported, or returns an unusable
                object.
        """

    @abstractmethod
    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a native object of this framework.

        ``options`` are the arguments of the export method, e.g. ``base_url``.
        """

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is an agent of this framework.

        Args:
            agent: The object at ``origin``, or the agent that the factory at ``origin``
                returned.
            origin: The user's reference, for the message.

        Raises:
            UnsupportedError: The object is not an agent; the message has its type.
        """

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a framework's tool, or a set of tools, to AgentGym tools.

        Calling a returned tool runs its real code.

        Raises:
            UnsupportedError: It is not a tool.
        """
        raise UnsupportedError(
            f"{self.name} cannot take tools from a {type(found).__name__}: name a "
            "tool, or a list of tools. An agent brings its own: --agent alone."
        )

    def acts(self, value: Any) -> bool:
        """Return whether an object that a tool's code names is an agent that acts.

        The agent's own code then runs the tool, so that the agent inside it is trained.
        An agent without tools is asked like a model; it does not act.
        """
        return False

    def stand_in(self) -> Any:
        """Return a placeholder model, to build a factory's agent without running it.

        Raises:
            UnsupportedError: The adapter has no placeholder model.
        """
        raise UnsupportedError(f"{self.name} cannot look into the agents of a factory.")

    def gateway_model(self, models: Any) -> Any:
        """Return a model of this framework that sends its requests to the gateway.

        In training, it replaces the models of all agents of this framework.

        Args:
            models: The worker's ``GatewayModels``, with clients of the gateway.

        Raises:
            UnsupportedError: The framework has no models to replace.
        """
        raise UnsupportedError(f"{self.name} has no models that can be replaced.")

    def trained_model(
        self, trained: Trained, base_url: str | None = None, api_key: str | None = None
    ) -> Any:
        """Return a model of this framework that answers with a trained agent's weights.

        If ``base_url`` is given, the server at this address answers. Otherwise, the
        weights are loaded into this process. The default sampling options are those
        with which the agent was evaluated.

        Raises:
            UnsupportedError: The framework has no models.
        """
        raise UnsupportedError(f"{self.name} has no models.")

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent with another model.

        Args:
            agent: An agent of this framework.
            model: A model object of the framework.

        Raises:
            UnsupportedError: The agent's model cannot be replaced.
        """
        raise UnsupportedError(f"{self.name} cannot give {agent!r} another model.")
