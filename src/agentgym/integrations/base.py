"""The interface of an adapter of an agent framework."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agentgym.core.agent import AgentSource, Trained
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import UnsupportedError, UsageError


@dataclass(frozen=True)
class Blueprint:
    """The definition of an agent, built once per worker.

    Attributes:
        system_prompt: Its role and rules.
        tools: The original schemas of the tools that every task has; calls go to the
            current episode. Empty where each task has tools of its own, see
            :class:`~agentgym.integrations.tool_sets.ToolSets`.
        max_turns: Model calls after which an episode is cut, over all turns of the
            user.
        gateway: Base URL of the gateway, without a path.
        api_key: The gateway's for agents: it asks the model, and nothing else.
        model: The name of the policy.
        connections: Requests in flight at most.
        agent: The user's own agent and its input; without a reference, the default
            agent of the framework.
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
    """Refuse keys for ``config["configurable"]``, which only LangGraph has.

    Raises:
        UsageError: There are some.
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
        looked_into: Names of the agents in it.
    """
    return UnsupportedError(
        f"The {type(found).__name__} has no tools: neither has "
        f"{' nor '.join(looked_into)}. Training is about tool calls: give an agent its "
        "tools, or name functions with --tools-from module:TOOLS (a list)."
    )


class Conversation(ABC):
    """One episode's talk with the user, in the agent's own loop."""

    @abstractmethod
    async def turn(self, message: str) -> str:
        """Let the agent answer one message of the user; return the answer.

        The first message is the task. A later one follows the conversation so far,
        which may not change: the exact tokens of a turn can only be trained if the next
        turn's prompt begins with them. Model calls go out through the transport, tool
        calls to ``current_episode()``, which also counts turns and ends stuck episodes.

        Raises:
            EpisodeCut: The policy ran out of turns.
            Exception: Any other: the agent crashed, and the rollout is retried, unless
                the episode was cut: frameworks may then raise any exception.
        """

    def add_tools(self) -> None:
        """Offer the tools that the environment has added since the last turn.

        Raises:
            UnsupportedError: The agent is built with its tools.
        """
        raise UnsupportedError(
            "This task adds tools while its conversation goes on, and this agent is "
            "built with its tools. Take the native agent or LangChain's: --framework "
            "native."
        )

    async def close(self) -> None:
        """Release the conversation's resources."""


class AgentLoop(ABC):
    """An agent built once, for many episodes at a time.

    Attributes:
        agent: The framework's own object, for inspection.
        way: How its model is replaced, in words.
    """

    agent: Any = None
    way: str = "built on the model of training"

    @abstractmethod
    def converse(self) -> Conversation:
        """Return a fresh conversation, which remembers nothing of others.

        It offers the tools of the current episode's task:
        ``current_episode().task_tools``.
        """

    async def close(self) -> None:
        """Release the agent's resources."""


@dataclass(frozen=True)
class AgentRole:
    """One agent of a team, or the only one, as it was found in a live object.

    Attributes:
        name: As the framework calls it.
        system_prompt: None if it is unknown.
        tools: Those it may call.
        model: The framework's own model object.
        answers: Names of tools that no function stands behind: a call of one is a
            structured answer.
    """

    name: str
    system_prompt: str | None
    tools: list[ToolSpec]
    model: Any
    answers: tuple[str, ...] = ()


class Adapter(ABC):
    """Builds agents of one framework, looks into live ones, gives trained ones back.

    Attributes:
        name: Its name for ``--framework``.
        preload: Modules that every worker needs; imported once, before workers start.
        packages: Whose classes its agents and tools are of.
        addressee: Argument in which a call names the agent that it goes to; empty where
            each agent has a tool of its own.
        runs_tools: Whether the agent's own code answers every call, so that none acts
            on the episode's environment.
    """

    name: ClassVar[str]
    preload: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    addressee: ClassVar[str] = ""
    runs_tools: ClassVar[bool] = False

    def owns(self, root: str) -> bool:
        """Return whether a module at the top of a path is one of :attr:`packages`."""
        return root in self.packages

    @abstractmethod
    def check(self) -> None:
        """Check that the framework is installed, without importing it.

        Raises:
            MissingExtraError: Names the extra and the install command.
        """

    def check_reference(self, reference: str | None) -> None:
        """Check that this framework can train the agent that settings name.

        Args:
            reference: ``module:name``, or a program's command; None for the scenario's
                own agent, which most frameworks have.

        Raises:
            UnsupportedError: It cannot.
        """

    @abstractmethod
    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent: its model is the gateway, its tools the episode's.

        Raises:
            UsageError: The user's factory cannot be imported or built an object
                that does not run.
        """

    @abstractmethod
    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a native object of this framework."""

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that a live object is an agent of this framework.

        Args:
            agent: The object of ``origin``, or its result.
            origin: The reference that the user gave.

        Raises:
            UnsupportedError: It is another kind of object, which the message names.
        """

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return the agents of a live object: prompts, tools and models.

        Raises:
            UnsupportedError: The object is not an agent of this framework, or cannot be
                looked into.
        """
        raise UnsupportedError(f"{self.name} cannot look into {agent!r}.")

    def extract_tools(self, agent: Any) -> list[ToolSpec]:
        """Return the tools of all roles of a live agent, each name once.

        Raises:
            UnsupportedError: As :meth:`roles`.
        """
        found = {tool.name: tool for role in self.roles(agent) for tool in role.tools}
        return list(found.values())

    def own_tools(self, found: Any) -> list[Tool]:
        """Return the tools of a live agent, or one of this framework's own tools.

        Those that only pass control on, to another agent of a team or below, are not
        returned: they run as they are. A call runs the tool itself.

        Raises:
            UnsupportedError: It has none that can be listed.
        """
        raise UnsupportedError(f"{self.name} cannot take tools from {found!r}.")

    def stand_in(self) -> Any:
        """Return a model of the framework's own that is never called, for agents.

        Raises:
            UnsupportedError: The adapter has none.
        """
        raise UnsupportedError(f"{self.name} cannot look into the agents of a factory.")

    def concerns(self, agent: Any) -> list[str]:
        """Return the differences for a live agent in training, in sentences."""
        return []

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return an agent like ``agent``, which stays as it is, with another model.

        Args:
            agent: Of this framework.
            model: One of the framework's own.

        Raises:
            UnsupportedError: Its model cannot be replaced.
        """
        raise UnsupportedError(f"{self.name} cannot give {agent!r} another model.")
