"""The AutoGen adapter: real agents and teams, trained in their own loop."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agentgym.core.agent import Trained
from agentgym.errors import RolloutError, UnsupportedError
from agentgym.integrations.base import (
    Adapter,
    AgentLoop,
    AgentRole,
    Blueprint,
    Conversation,
)
from agentgym.integrations.episode import current_episode
from agentgym.integrations.registry import load_factory, require
from agentgym.integrations.transport import PLACEHOLDER, episode_client


class AutoGenAgent(AgentLoop):
    """One client and one set of tools for all episodes; an agent for each."""

    def __init__(self, blueprint: Blueprint) -> None:
        from agentgym.integrations.autogen.clients import POLICY_INFO, GatewayClient
        from agentgym.integrations.autogen.live import default_agent, require_runner
        from agentgym.integrations.autogen.tools import episode_tool

        self._http = episode_client(blueprint)
        options: dict[str, Any] = {  # http_client is openai's, AutoGen passes it on
            "model": blueprint.model,
            "base_url": blueprint.gateway + PLACEHOLDER,
            "api_key": blueprint.api_key,
            "http_client": self._http,
            "max_retries": 0,
            "model_info": POLICY_INFO,
        }
        llm = GatewayClient(**options)
        tools = [episode_tool(spec) for spec in blueprint.tools]
        if blueprint.factory is None:
            # One more than there are: the episode ends it, and says why.
            most = blueprint.max_turns + 1
            prompt = blueprint.system_prompt
            self._make: Callable[[], Any] = lambda: default_agent(
                "agent", llm, tools, prompt, most
            )
        else:
            factory = load_factory(blueprint.factory)
            self._make = lambda: factory(llm, list(tools))
        logging.getLogger("autogen_core").addFilter(_is_news)
        self._next = self._make()
        require_runner(self._next, blueprint.factory or "the scenario")

    def converse(self) -> Conversation:
        """Return a conversation of an agent that has heard nothing yet."""
        made, self._next = self._next, None
        return _AgentConversation(self._make() if made is None else made)

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._http.aclose()


def _is_news(record: logging.LogRecord) -> bool:
    """Say whether a record is about more than the end of an episode that was cut."""
    try:
        return current_episode().cut is None
    except RolloutError:
        return True


class _AgentConversation(Conversation):
    """Runs an agent or a team once for each message; it remembers those before."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    async def turn(self, message: str) -> str:
        from autogen_agentchat.messages import BaseChatMessage

        result = await self._agent.run(task=message)
        said = [m for m in result.messages if isinstance(m, BaseChatMessage)]
        return said[-1].to_text() if said else ""

    async def close(self) -> None:
        from agentgym.integrations.autogen.live import members

        for member in members(self._agent):
            await member.close()


class AutoGenAdapter(Adapter):
    """autogen-agentchat 0.7: ``AssistantAgent`` and teams of agents."""

    name = "autogen"
    preload = (
        "autogen_agentchat.agents",
        "autogen_agentchat.teams",
        "autogen_agentchat.conditions",
        "openai.resources",
        "agentgym.integrations.autogen.clients",
        "agentgym.integrations.autogen.live",
        "agentgym.integrations.autogen.tools",
    )

    def check(self) -> None:
        """Check that autogen-agentchat and autogen-ext[openai] are installed."""
        modules = ["autogen_agentchat", "autogen_ext", "openai", "tiktoken"]
        require(modules, "autogen", "The AutoGen adapter")

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent whose model is the gateway."""
        self.check()
        return AutoGenAgent(blueprint)

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return an agent, or the members of a team: those that ask a model."""
        self.check()
        from agentgym.integrations.autogen.live import role_of, speakers

        return [role_of(speaker) for speaker in speakers(agent)]

    @contextmanager
    def rebound(self, agent: Any, model: Any) -> Iterator[str]:
        """Give an agent, or all members of a team, another model client."""
        self.check()
        from agentgym.integrations.autogen.live import model_slots

        slots = model_slots(agent)
        if not slots:
            raise UnsupportedError(
                f"The model client of {agent!r} is not to be found. Give a factory "
                "instead: def make_agent(llm, tools)."
            )
        before = [(holder, name, getattr(holder, name)) for holder, name in slots]
        try:
            for holder, name in slots:
                setattr(holder, name, model)
            yield f"the attribute {slots[0][1]} of {len(slots)} agent(s)"
        finally:
            for holder, name, client in before:
                setattr(holder, name, client)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as an AssistantAgent, or as its factory makes it."""
        self.check()
        from agentgym.integrations.autogen.export import export

        return export(trained, **options)
