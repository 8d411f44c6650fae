"""The AutoGen adapter: trains agents and teams, which AutoGen itself runs."""

import logging
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.tools import ToolSpec
from agentgym.errors import RolloutError, UnsupportedError
from agentgym.integrations.base import Blueprint, Conversation
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.on_client.adapter import (
    ClientAdapter,
    ClientConversation,
    ClientLoop,
    Run,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_NO_LEDGER = "Failed to parse ledger information"
_NO_SPEAKER = "the ledger of MagenticOneGroupChat names a speaker that there is not"


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether to keep a log record; False if its episode was cut short."""
    try:
        return current_episode().cut is None
    except RolloutError:
        return True


class _AgentConversation(ClientConversation):
    """Runs an agent or team once per message of the user.

    The agent or team itself keeps the earlier messages.
    """

    def __init__(self, agent: Any, loop: ClientLoop) -> None:
        super().__init__(loop)
        self._agent = agent

    async def answer(self, asked: Any) -> str:
        from autogen_agentchat.messages import BaseChatMessage

        messages = asked if isinstance(asked, list | tuple) else [asked]
        are_messages = all(isinstance(each, BaseChatMessage) for each in messages)
        if not isinstance(asked, str) and not (messages and are_messages):
            raise self._loop.wrong_input(
                asked,
                "an input of the agent's run(task=...): text, or messages of AutoGen's",
            )
        try:
            result = await self._agent.run(task=asked)
        except (RuntimeError, ValueError) as error:
            if _NO_LEDGER in str(error):
                raise EpisodeCut("wrong form", _NO_SPEAKER) from error
            raise
        said = [m for m in result.messages if isinstance(m, BaseChatMessage)]
        return said[-1].to_text() if said else ""


class AutoGenAdapter(ClientAdapter):
    """Adapter for agents and teams of autogen-agentchat 0.7."""

    name = "autogen"
    title = "AutoGen"
    extra = "autogen"
    agents = "an AssistantAgent, or a team such as RoundRobinGroupChat"
    models = "a model client of AutoGen's"
    modules = ("autogen_agentchat", "autogen_ext", "openai", "tiktoken")
    packages = ("autogen_agentchat", "autogen_core", "autogen_ext")
    takes_any_input = True
    inspector = "agentgym.plugins.autogen.describe"
    preload = (
        "autogen_agentchat.agents",
        "autogen_agentchat.teams",
        "autogen_agentchat.conditions",
        "openai.resources",
        "agentgym.plugins.autogen.clients",
        "agentgym.plugins.autogen.copies",
        inspector,
        "agentgym.plugins.autogen.tools",
        "agentgym.integrations.on_client.clients",
    )

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a model client with the address, key and HTTP client of ``client``."""
        from agentgym.plugins.autogen.clients import POLICY_INFO, GatewayClient

        options: dict[str, Any] = {  # AutoGen's client makes its own client of openai's
            "model": name,
            "base_url": str(client.base_url),
            "api_key": client.api_key,
            "http_client": client._client,
            "max_retries": 0,
            "model_info": POLICY_INFO,
        }
        return GatewayClient(**options)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        from agentgym.plugins.autogen.tools import AutoGenSpecTool

        return AutoGenSpecTool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from autogen_agentchat.agents import AssistantAgent

        return AssistantAgent(
            name,
            model,
            tools=tools,
            system_message=settings.system_prompt or None,
            max_tool_iterations=settings.max_turns,
        )

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> Any:
        """Return a maker of copies of ``agent``."""
        from agentgym.plugins.autogen.copies import Copies

        logging.getLogger("autogen_core").addFilter(_is_news)
        return Copies(agent, loop.model)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a conversation with a copy of an agent."""
        return _AgentConversation(agent.make(), loop)

    def members(self, agent: Any) -> dict[str, Any]:
        """Return the members of a team, with their model clients."""
        from autogen_agentchat.base import ChatAgent

        describe = self.describe()
        parts = [x for x in describe.parts(agent) if isinstance(x, ChatAgent)]
        return {each.name: describe.model_of(each) for each in parts}

    def notes(self, agent: Any) -> list[str]:
        """Return notes on an agent's users, code and memory in training."""
        found: list[str] = self.describe().notes(agent)
        return found

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent or team whose model clients are all ``model``.

        Functions, external workbenches and most other objects from libraries are shared
        with the original.
        """
        from agentgym.plugins.autogen.copies import Copies

        copies = Copies(agent, model)
        if not copies.clients:
            raise UnsupportedError(
                f"The model client of {agent!r} was not found. Give a factory "
                "instead: def make_agent(llm, tools)."
            )
        return copies.make()

    def trained_model(
        self, trained: Trained, base_url: str | None = None, api_key: str | None = None
    ) -> Any:
        """Return a model client that answers with a trained agent's weights."""
        from agentgym.plugins.autogen.clients import TrainedClient

        return TrainedClient(TrainedEndpoint.of(trained, base_url, api_key))
