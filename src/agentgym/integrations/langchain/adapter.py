"""The LangChain adapter: a real graph, trained in its own loop and given back."""

from typing import TYPE_CHECKING, Any

from agentgym.core.agent import Trained
from agentgym.core.tools import Tool
from agentgym.integrations.base import (
    Adapter,
    AgentLoop,
    AgentRole,
    Blueprint,
    Conversation,
)
from agentgym.integrations.langchain import graphs
from agentgym.integrations.langchain.conversation import GraphConversation, GraphRun
from agentgym.integrations.live import load_agent, make, takes_model
from agentgym.integrations.registry import require
from agentgym.integrations.transport import (
    PLACEHOLDER,
    episode_client,
    sync_episode_client,
)

if TYPE_CHECKING:
    pass


class LangChainAgent(AgentLoop):
    """One compiled graph for all episodes of a worker."""

    def __init__(self, blueprint: Blueprint) -> None:
        from agentgym.integrations.langchain.gateway import GatewayChatOpenAI
        from agentgym.integrations.langchain.tools import episode_tool

        self._client = episode_client(blueprint)
        self._sync_client = sync_episode_client(blueprint)
        llm = GatewayChatOpenAI(
            model=blueprint.model,
            base_url=blueprint.gateway + PLACEHOLDER,
            api_key=lambda: blueprint.api_key,
            http_async_client=self._client,
            http_client=self._sync_client,
            max_retries=0,
            cache=False,
        )
        tools = [episode_tool(spec) for spec in blueprint.tools]
        if blueprint.agent is None:
            from langchain.agents import create_agent

            self.agent: Any = create_agent(
                model=llm, tools=tools, system_prompt=blueprint.system_prompt
            )
        else:
            found = load_agent(blueprint.agent)
            self.agent = make(found, blueprint.agent, llm=llm, tools=tools)
            graphs.require_graph(self.agent, blueprint.agent)
            self.way = (
                "the factory is given the model of training"
                if takes_model(found)
                else "its chat models, wherever they are made, answer from training's"
            )
        led_to = None if blueprint.agent is None else llm
        self._run = GraphRun(self.agent, blueprint, led_to)

    def converse(self) -> Conversation:
        """Return a conversation that no message was said in."""
        return GraphConversation(self._run)

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._client.aclose()
        self._sync_client.close()


class LangChainAdapter(Adapter):
    """LangChain >= 1.4: ``langchain.agents.create_agent`` and LangGraph graphs."""

    name = "langchain"
    preload = (
        "langchain.agents",
        "langchain_openai",
        "openai.resources",
        "agentgym.integrations.langchain.gateway",
    )
    packages = ("langgraph", "langchain", "langchain_core")

    def check(self) -> None:
        """Check that langchain, langgraph and langchain-openai are installed."""
        modules = ["langchain", "langgraph", "langchain_openai"]
        require(modules, "langchain", "The LangChain adapter")

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that it is a compiled graph."""
        graphs.require_graph(agent, origin)

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return the agents of a graph: itself, and those in its nodes and tools."""
        return graphs.roles(agent)

    def own_tools(self, found: Any) -> list[Tool]:
        """Return the tools of a graph, or one of LangChain's tools."""
        return graphs.own_tools(found)

    def stand_in(self) -> Any:
        """Return a chat model that answers nothing."""
        from agentgym.integrations.langchain.model import PolicyChatModel

        return PolicyChatModel()

    def concerns(self, agent: Any) -> list[str]:
        """Return what is different for a graph in training: memory, interrupts."""
        return graphs.concerns(agent)

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of a graph in whose nodes each model answers from another."""
        from agentgym.integrations.langchain.rebound import rebound

        return rebound(agent, model)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the graph whose model is the gateway."""
        self.check()
        return LangChainAgent(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a compiled graph."""
        self.check()
        from agentgym.integrations.langchain.export import export

        return export(trained, **options)
