"""RolloutAgent: what every agent for rollouts must do."""

from abc import ABC, abstractmethod
from typing import ClassVar

from agentgym.rollout.solo.attempt import Attempt


class RolloutAgent(ABC):
    """Attempts tasks, many at a time, each in its own asyncio task.

    ::

        class OneShot(RolloutAgent):
            name = "one_shot"

            async def run(self, attempt):
                reply = await attempt.ask(attempt.opening())
                return reply.content

    One instance serves all rollouts: keep what belongs to one in local variables.

    Attributes:
        name: What users type.
        system_prompt: Unless the configuration or the scenario has one.
        tools: Ready-made tools that it gets unless others are chosen.
    """

    name: ClassVar[str] = "agent"
    system_prompt: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    async def run(self, attempt: Attempt) -> str | None:
        """Attempt one task and return the answer; empty or None for no answer.

        Ask the model with ``attempt.ask`` and use tools with ``attempt.use_tool``, so
        that both are recorded. Do not block the event loop.

        Raises:
            Exception: Any; the rollout is dropped with it as the reason.
        """
