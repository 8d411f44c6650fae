"""What an adapter of an agent framework must do."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import Reason


@dataclass(frozen=True)
class Blueprint:
    """What an agent is built from, once per worker.

    Attributes:
        system_prompt: Its role and rules.
        tools: The tools' original schemas; calls go to the current episode.
        max_turns: Model calls after which an episode is cut, over all turns of the
            user.
        gateway: Base URL of the gateway, without a path.
        api_key: For the gateway.
        model: The name of the policy.
        connections: Requests in flight at most.
        factory: ``module:name`` of the user's own factory, None for the default
            agent of the framework.
    """

    system_prompt: str
    tools: list[ToolSpec]
    max_turns: int
    gateway: str
    api_key: str
    model: str
    connections: int
    factory: str | None = None


class EpisodeCut(Exception):
    """The policy itself brought the episode to its end; it is scored as it is.

    Attributes:
        reason: Its kind is ``max_turns``, ``context_overflow`` or ``stuck``.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = Reason(kind=reason, detail=detail)
        super().__init__(str(self.reason))


class RunnableAgent(ABC):
    """An agent that runs episodes, many at a time, each in its own asyncio task."""

    @abstractmethod
    async def run(self, instruction: str) -> None:
        """Talk with the user, from their first message to the end.

        The current episode says where model calls go, which tools there are, and
        what the user says next: after each answer of the agent's own loop ask
        ``current_episode().user_reply(answer)``. None ends the conversation. Else
        append the message to what was said so far, changing none of it, and run the
        loop again: the exact tokens of a turn can only be trained if the next turn's
        prompt begins with them.

        Raises:
            EpisodeCut: The policy ran out of turns or context, or is stuck.
            Exception: Any other: the agent crashed, and the rollout is retried.
        """

    async def close(self) -> None:
        """Release what the agent holds."""


class Adapter(ABC):
    """Builds agents of one framework and gives trained ones back.

    Attributes:
        name: What users type after ``--framework``.
        extra: The extra that installs the framework, None if it needs none.
    """

    name: ClassVar[str]
    extra: ClassVar[str | None] = None

    @abstractmethod
    def check(self) -> None:
        """Check that the framework is installed, without importing it.

        Raises:
            MissingExtraError: Names the extra and the install command.
        """

    @abstractmethod
    def extract_tools(self, agent: Any) -> list[ToolSpec]:
        """Return the tools of a live agent of this framework.

        Raises:
            UnsupportedError: The object is no agent of this framework.
        """

    @abstractmethod
    def create_environment(self, blueprint: Blueprint) -> RunnableAgent:
        """Build the agent: its model is the gateway, its tools the episode's.

        Raises:
            UsageError: The user's factory cannot be imported or built an object
                that does not run.
        """

    @abstractmethod
    def wrap_agent(self, trained: Any, **options: Any) -> Any:
        """Return a ``TrainedAgent`` as a native agent of this framework."""
