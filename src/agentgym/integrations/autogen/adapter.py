"""The AutoGen adapter: trains agents and teams, which AutoGen itself runs."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from agentgym.core.agent import Trained
from agentgym.core.task import Task
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import RolloutError, UsageError
from agentgym.integrations.agent_import import (
    load_agent,
    make,
    takes_model,
    takes_tools,
    values_for,
)
from agentgym.integrations.base import (
    Adapter,
    AgentLoop,
    AgentRole,
    Blueprint,
    Conversation,
    refuse_configurable,
)
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.openai_client import clients_redirected_to
from agentgym.integrations.registry import require
from agentgym.integrations.tool_sets import ToolSets
from agentgym.integrations.transport import PLACEHOLDER, episode_client

_NO_LEDGER = "Failed to parse ledger information"
_NO_SPEAKER = "the ledger of MagenticOneGroupChat names a speaker that there is not"


class AutoGenAgent(AgentLoop):
    """Runs a new copy of an agent in each episode; all copies use one model client."""

    def __init__(self, blueprint: Blueprint) -> None:
        from agentgym.integrations.autogen.clients import POLICY_INFO, GatewayClient

        if blueprint.agent.context is not None:
            raise UsageError(
                f"--context {blueprint.agent.context}: AutoGen has no runtime context. "
                "Give --inputs to change the agent's input."
            )
        refuse_configurable(blueprint, "AutoGen")
        self._blueprint = blueprint
        self._inputs = values_for(blueprint.agent.inputs, "--inputs")
        self._http = episode_client(blueprint)
        options: dict[str, Any] = {  # the client passes http_client on to openai
            "model": blueprint.model,
            "base_url": blueprint.gateway + PLACEHOLDER,
            "api_key": blueprint.api_key,
            "http_client": self._http,
            "max_retries": 0,
            "model_info": POLICY_INFO,
        }
        self._llm = GatewayClient(**options)
        self._benches: list[Any] = []
        logging.getLogger("autogen_core").addFilter(_is_news)
        origin = blueprint.agent.reference
        differs = origin is None or takes_tools(load_agent(origin))
        self._makers = ToolSets(blueprint.tools, self._maker, differs=differs)
        if origin is None:
            self.agent = self._makers.usual()

    def _maker(self, specs: list[ToolSpec]) -> Callable[[], Any]:
        from agentgym.integrations.autogen.describe import default_agent
        from agentgym.integrations.autogen.tools import episode_tool

        blueprint, llm = self._blueprint, self._llm
        tools = [episode_tool(spec) for spec in specs]
        if blueprint.agent.reference is not None:
            return self._copies(blueprint.agent.reference, llm, tools)
        # One more than the episode's limit, which ends the agent first, with a reason.
        most = blueprint.max_turns + 1
        prompt = blueprint.system_prompt
        return lambda: default_agent("agent", llm, tools, prompt, most)

    def _copies(self, origin: str, llm: Any, tools: list[Any]) -> Callable[[], Any]:
        from agentgym.integrations.autogen.copies import Copies
        from agentgym.integrations.autogen.describe import require_runner

        found = load_agent(origin)
        agent = make(found, origin, llm=llm, tools=list(tools))
        require_runner(agent, origin)
        copies = Copies(agent, llm, in_episodes=True)
        if self.agent is None:
            self.agent = agent
        self._benches += copies.benches
        replaced = [client for client in copies.clients if client is not llm]
        if takes_model(found) and not replaced:
            self.way = "the factory is given the model of training"
        else:
            self.way = "every episode has a copy, whose model clients are training's"
        return copies.make

    def converse(self) -> Conversation:
        """Return a conversation with a new copy of the agent."""
        agent = self._makers.of_episode()()
        return _AgentConversation(agent, self._blueprint, self._inputs)

    async def close(self) -> None:
        """Close the HTTP connections, and stop the workbenches of the episodes."""
        for bench in self._benches:
            await bench.end()
        await self._http.aclose()


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for log records of an episode that was cut short, to drop them."""
    try:
        return current_episode().cut is None
    except RolloutError:
        return True


class _AgentConversation(Conversation):
    """Runs an agent or a team once per message; the agent keeps earlier messages."""

    def __init__(
        self, agent: Any, blueprint: Blueprint, inputs: Callable[[Task], Any]
    ) -> None:
        self._agent = agent
        self._blueprint = blueprint
        self._inputs: Callable[[Task], Any] | None = inputs

    async def turn(self, message: str) -> str:
        from autogen_agentchat.messages import BaseChatMessage

        from agentgym.integrations.autogen.routed import keep_context

        keep_context(asyncio.get_running_loop())
        with clients_redirected_to(self._blueprint):
            try:
                result = await self._agent.run(task=self._input(message))
            except (RuntimeError, ValueError) as error:
                if _NO_LEDGER in str(error):
                    raise EpisodeCut("wrong form", _NO_SPEAKER) from error
                raise
        said = [m for m in result.messages if isinstance(m, BaseChatMessage)]
        return said[-1].to_text() if said else ""

    def _input(self, message: str) -> Any:
        """Return the agent's input: the value of ``--inputs``, if set, or the message.

        ``--inputs`` only replaces the user's first message.
        """
        from autogen_agentchat.messages import BaseChatMessage

        inputs, self._inputs = self._inputs, None
        text = None if inputs is None else inputs(current_episode().task)
        if text is None:
            return message
        messages = text if isinstance(text, list | tuple) else [text]
        if isinstance(text, str) or (
            messages and all(isinstance(m, BaseChatMessage) for m in messages)
        ):
            return text
        raise UsageError(
            f"--inputs {self._blueprint.agent.inputs} gave a {type(text).__name__}. "
            "Return an input of the agent's run(task=...): text, or messages of "
            "AutoGen's."
        )


class AutoGenAdapter(Adapter):
    """Adapter of autogen-agentchat 0.7: ``AssistantAgent`` and teams of agents."""

    name = "autogen"
    preload = (
        "autogen_agentchat.agents",
        "autogen_agentchat.teams",
        "autogen_agentchat.conditions",
        "openai.resources",
        "agentgym.integrations.autogen.clients",
        "agentgym.integrations.autogen.copies",
        "agentgym.integrations.autogen.describe",
        "agentgym.integrations.autogen.tools",
    )
    packages = ("autogen_agentchat", "autogen_core", "autogen_ext")

    def check(self) -> None:
        """Check that autogen-agentchat and autogen-ext[openai] are installed."""
        modules = ["autogen_agentchat", "autogen_ext", "openai", "tiktoken"]
        require(modules, "autogen", "The AutoGen adapter")

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the agent or team; its model calls go to the gateway."""
        self.check()
        return AutoGenAgent(blueprint)

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is an agent or a team."""
        self.check()
        from agentgym.integrations.autogen.describe import require_runner

        require_runner(agent, origin)

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return a description of an agent, or of the members that call a model."""
        self.check()
        from agentgym.integrations.autogen.describe import role_of, speakers

        return [role_of(speaker) for speaker in speakers(agent)]

    def own_tools(self, found: Any) -> list[Tool]:
        """Convert the tools of an agent or team, or one tool, to callable tools."""
        self.check()
        from agentgym.integrations.autogen.describe import own_tools

        return own_tools(found)

    def stand_in(self) -> Any:
        """Return a placeholder model client, which is never called."""
        self.check()
        from agentgym.integrations.autogen.clients import POLICY_INFO, PlainOpenAIClient

        return PlainOpenAIClient(model="none", api_key="none", model_info=POLICY_INFO)

    def concerns(self, agent: Any) -> list[str]:
        """Return sentences on parts that training changes, e.g. user proxies."""
        self.check()
        from agentgym.integrations.autogen.describe import concerns

        return concerns(agent)

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent or team whose model clients are all ``model``.

        Functions, external workbenches and most other objects from libraries are shared
        with the original.
        """
        self.check()
        from agentgym.integrations.autogen.copies import with_model

        return with_model(agent, model)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as an AssistantAgent, or as the user's own agent."""
        self.check()
        from agentgym.integrations.autogen.export import export

        return export(trained, **options)
