"""Adapter: the interface of an agent framework's adapter."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agentgym.core.agent import AgentSource, Trained
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, UsageError


@dataclass(frozen=True)
class Blueprint:
    """The definition of an agent, created once per worker.

    Attributes:
        system_prompt: Its role and rules.
        tools: The original schemas of the tools that every task has; calls go to the
            current episode. Empty if each task has its own tools, see
            :class:`~agentgym.integrations.tool_sets.ToolSets`.
        max_turns: Most model calls of an episode, over all turns of the user.
        gateway: Base URL of the gateway, without a path.
        api_key: The gateway's key for agents, which only allows model calls.
        model: The policy's model name.
        connections: Most requests in flight.
        agent: The user's own agent and its inputs; without a reference, the framework's
            default agent.
    """

    system_prompt: str
    tools: list[ToolSpec]
    max_turns: int
    gateway: str
    api_key: str
    model: str
    connections: int
    agent: AgentSource = field(default_factory=AgentSource)


def refuse_configurable(blueprint: Blueprint, framework: str) -> None:
    """Raise if keys for ``config["configurable"]`` are set, which only LangGraph has.

    Raises:
        UsageError: Such keys are set.
    """
    if blueprint.agent.configurable:
        keys = ", ".join(blueprint.agent.configurable)
        raise UsageError(
            f"--configurable {keys}: {framework} has no "
            "configurable keys, LangGraph has. Give --inputs for an agent's input."
        )


def no_tools(found: Any, looked_into: Sequence[str]) -> UnsupportedError:
    """Return the error for a live agent without tools.

    Args:
        found: The agent.
        looked_into: Names of its agents.
    """
    return UnsupportedError(
        f"The {type(found).__name__} has no tools: neither has "
        f"{' nor '.join(looked_into)}. Training is about tool calls: give an agent its "
        "tools, or name functions with --tools-from module:TOOLS (a list)."
    )


class Conversation(ABC):
    """One episode's conversation with the user, in the agent's own loop."""

    @abstractmethod
    async def turn(self, message: str) -> str:
        """Send the agent one message of the user, and return its answer.

        The first message is the task. A later one continues the conversation, which may
        not change: a turn's exact tokens can only be trained if the next prompt begins
        with them. Model calls go through the transport, tool calls to
        ``current_episode()``, which also counts turns and ends stuck episodes.

        Raises:
            EpisodeCut: The policy ran out of turns.
            Exception: Any other exception is a crash of the agent, and the rollout is
                retried, unless the episode was ended by a limit: frameworks may then
                raise anything.
        """

    def add_tools(self) -> None:
        """Offer tools that the environment has added since the last turn.

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
        agent: The framework's object, for inspection.
        way: Description of how its model is replaced.
    """

    agent: Any = None
    way: str = "built on the model of training"

    @abstractmethod
    def converse(self) -> Conversation:
        """Return a new conversation, independent of others.

        It offers the tools of the current episode's task:
        ``current_episode().task_tools``.
        """

    async def close(self) -> None:
        """Release the agent's resources."""


@dataclass(frozen=True)
class AgentRole:
    """One agent of a team, or the only one, read from a live object.

    Attributes:
        name: Its name in the framework.
        system_prompt: None if it is unknown.
        tools: Tools that it may call.
        model: The framework's own model object.
        answers: Names of tools without a function: calling one is a structured answer.
    """

    name: str
    system_prompt: str | None
    tools: list[ToolSpec]
    model: Any
    answers: tuple[str, ...] = ()


class Adapter(ABC):
    """Builds agents of one framework, inspects live agents, and exports trained ones.

    Attributes:
        name: Its name for ``--framework``.
        preload: Modules that every worker needs, imported once before workers start.
        packages: Top-level packages of its classes of agents and tools.
        addressee: Name of the argument with which a call names an agent; empty if each
            agent has its own tool.
        runs_tools: Whether the agent's own code runs all tools, so that none acts on
            the episode's environment.
    """

    name: ClassVar[str]
    preload: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    addressee: ClassVar[str] = ""
    runs_tools: ClassVar[bool] = False

    def owns(self, root: str) -> bool:
        """Return whether a top-level module is one of :attr:`packages`."""
        return root in self.packages

    @abstractmethod
    def check(self) -> None:
        """Check that the framework is installed, without importing it.

        Raises:
            MissingExtraError: It is missing; the message has the install command.
        """

    def check_reference(self, reference: str | None) -> None:
        """Check that this framework can train the agent in the settings.

        Args:
            reference: ``module:name``, or a program's command; None for the scenario's
                own agent, which most frameworks have.

        Raises:
            UnsupportedError: It cannot.
        """

    @abstractmethod
    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent with the gateway as its model, and the episode's tools.

        Raises:
            UsageError: The user's factory cannot be imported, or returns an unusable
                object.
        """

    @abstractmethod
    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a native object of this framework."""

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is an agent of this framework.

        Args:
            agent: The object at ``origin``, or the factory's result.
            origin: The reference from the user.

        Raises:
            UnsupportedError: It is another type of object, which the message names.
        """

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return a live object's agents, with their prompts, tools and models.

        Raises:
            UnsupportedError: The object is not an agent of this framework, or cannot be
                inspected.
        """
        raise UnsupportedError(f"{self.name} cannot look into {agent!r}.")

    def extract_tools(self, agent: Any) -> list[ToolSpec]:
        """Return the tools of all roles of a live agent, once per name.

        Raises:
            UnsupportedError: See :meth:`roles`.
        """
        found = {tool.name: tool for role in self.roles(agent) for tool in role.tools}
        return list(found.values())

    def own_tools(self, found: Any) -> list[Tool]:
        """Return the tools of a live agent, or one of this framework's own tools.

        Tools that only pass control to another agent are left out: they run unchanged.
        Calling a returned tool runs it.

        Raises:
            UnsupportedError: It has no tools that can be listed.
        """
        raise UnsupportedError(f"{self.name} cannot take tools from {found!r}.")

    def stand_in(self) -> Any:
        """Return a placeholder model of the framework that is never called.

        Raises:
            UnsupportedError: The adapter has none.
        """
        raise UnsupportedError(f"{self.name} cannot look into the agents of a factory.")

    def concerns(self, agent: Any) -> list[str]:
        """Return sentences on how training differs for a live agent."""
        return []

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent with another model.

        Args:
            agent: An agent of this framework.
            model: A model object of the framework.

        Raises:
            UnsupportedError: Its model cannot be replaced.
        """
        raise UnsupportedError(f"{self.name} cannot give {agent!r} another model.")
