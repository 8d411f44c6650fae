"""The CrewAI adapter: real agents and crews, trained in their own loop."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from agentgym.core.agent import Trained
from agentgym.core.background import call_in_thread
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import (
    Adapter,
    AgentLoop,
    AgentRole,
    Blueprint,
    Conversation,
)
from agentgym.integrations.crewai.quiet import QUIET, environment, silence
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.registry import require


class CrewAIAgent(AgentLoop):
    """An agent or a crew that each episode has a copy of."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._storage = TemporaryDirectory(prefix="agentgym-crewai-")
        os.environ.update(QUIET, CREWAI_STORAGE_DIR=self._storage.name)
        try:
            self._build(blueprint)
        except BaseException:
            self._storage.cleanup()
            raise

    def _build(self, blueprint: Blueprint) -> None:
        from agentgym.integrations.crewai.crews import build
        from agentgym.integrations.crewai.gateway import GatewayLLM
        from agentgym.integrations.crewai.tools import EpisodeTool

        self._llm = GatewayLLM.of(blueprint)
        self._agent = build(
            blueprint.factory,
            self._llm,
            [EpisodeTool.of(spec) for spec in blueprint.tools],
            system_prompt=blueprint.system_prompt,
            max_turns=blueprint.max_turns,
        )
        silence()

    def converse(self) -> Conversation:
        """Return a conversation with a fresh copy."""
        from crewai import Crew

        if isinstance(self._agent, Crew):
            return _CrewConversation(self._agent.copy())
        return _AgentConversation(self._agent.copy())

    async def close(self) -> None:
        """Close the pooled connections and remove what CrewAI has stored."""
        await self._llm.close()
        self._storage.cleanup()


class _AgentConversation(Conversation):
    """Hands an agent all messages so far, once for each message of the user."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._messages: list[dict[str, Any]] = []

    async def turn(self, message: str) -> str:
        asked = [*self._messages, {"role": "user", "content": message}]
        output = await _kick_off(self._agent.kickoff, asked)
        if output is None:
            return ""
        self._messages = [m for m in output.messages if m["role"] != "system"]
        self._messages[-1] = {**self._messages[-1], "content": output.raw}  # unstripped
        return str(output.raw)


class _CrewConversation(Conversation):
    """Kicks a crew off, which works on its tasks and knows of no conversation."""

    def __init__(self, crew: Any) -> None:
        self._crew = crew
        self._has_answered = False

    async def turn(self, message: str) -> str:
        if self._has_answered:
            raise UnsupportedError(
                "A Crew or Task of CrewAI answers once, and the scenario's user says "
                "more. Let the factory return an Agent, which can go on."
            )
        self._has_answered = True
        output = await _kick_off(self._crew.kickoff, {"task": message})
        return "" if output is None else str(output.raw)


async def _kick_off(kickoff: Callable[[Any], Any], told: Any) -> Any:
    """Run an agent or a crew in a thread; None if its model's answer was empty."""
    from crewai.tools.tool_failure import ToolExecutionFailedError

    from agentgym.integrations.crewai.gateway import begin

    kept = begin()
    try:
        output = await call_in_thread(kickoff, told)
    except asyncio.CancelledError:
        current_episode().cut_short("cancelled")  # the thread's next request fails
        raise
    except ToolExecutionFailedError as error:
        if kept:
            raise kept[0] from None
        raise EpisodeCut("stuck", str(error)) from None
    except Exception as error:
        if kept:
            raise kept[0] from None
        if "None or empty" in str(error):
            return None
        raise
    if kept:
        raise kept[0]
    return output


class CrewAIAdapter(Adapter):
    """CrewAI >= 1.15: ``Agent``, and ``Task`` or ``Crew`` of a user's own factory."""

    name = "crewai"
    preload = ("agentgym.integrations.crewai.preload",)

    def check(self) -> None:
        """Check that crewai is installed."""
        require(["crewai"], "crewai", "The CrewAI adapter")

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return the agents of an Agent, a Task or a Crew."""
        self.check()
        from agentgym.integrations.crewai.crews import roles

        return roles(agent)

    @contextmanager
    def rebound(self, agent: Any, model: Any) -> Iterator[str]:
        """Assign ``llm`` of an Agent, or of all agents of a Task or Crew."""
        self.check()
        from agentgym.integrations.crewai.crews import rebound

        with rebound(agent, model) as way:
            yield way

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent or crew whose model is the gateway."""
        self.check()
        return CrewAIAgent(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as an Agent, or as what its factory builds."""
        self.check()
        os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")  # or it asks, each run
        with environment(**{**QUIET, **_set_by_user()}):
            from agentgym.integrations.crewai.export import export

            return export(trained, **options)


def _set_by_user() -> dict[str, str]:
    return {name: os.environ[name] for name in QUIET if name in os.environ}
