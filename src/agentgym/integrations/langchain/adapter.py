"""The LangChain adapter: trains graphs, which LangGraph runs, and exports them."""

from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec, Trained
from agentgym.core.tools import Tool, ToolSpec
from agentgym.integrations.base import Blueprint, Conversation, FrameworkAdapter
from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.gateway_models import GatewayModels
from agentgym.integrations.langchain import graphs
from agentgym.integrations.langchain.conversation import GraphConversation, GraphRun
from agentgym.integrations.on_client.adapter import ClientAdapter, ClientLoop, Run
from agentgym.integrations.transport import PLACEHOLDER

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class LangChainAdapter(ClientAdapter):
    """Adapter for compiled LangGraph graphs and LangChain >= 1.4's ``create_agent``."""

    name = "langchain"
    title = "LangChain"
    extra = "langchain"
    modules = ("langchain", "langgraph", "langchain_openai")
    context_argument = "context"
    takes_any_input = True
    takes_graph_options = True
    preload = (
        "langchain.agents",
        "langchain_core.prompts.chat",
        "langchain_openai",
        "httpcore",
        "openai.resources",
        "agentgym.integrations.langchain.gateway",
        "agentgym.integrations.langchain.redirect",
    )
    packages = ("langgraph", "langchain", "langchain_core")

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is a compiled graph."""
        graphs.require_graph(agent, origin)

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a LangChain tool to an AgentGym tool."""
        from langchain_core.tools import BaseTool

        if not isinstance(found, BaseTool):
            return FrameworkAdapter.tools_of(self, found)
        return [graphs.callable_tool(found)]

    def acts(self, value: Any) -> bool:
        """Return whether a value is a graph, or makes one."""
        return graphs.acts(value)

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a chat model that asks the address of ``client``."""
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(
            model=name, base_url=str(client.base_url), api_key=lambda: client.api_key
        )

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of LangChain with the schema ``spec``; it calls ``run``."""
        from agentgym.integrations.langchain.gateway import spec_tool

        return spec_tool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from langchain.agents import create_agent

        return create_agent(
            model=model,
            tools=tools,
            system_prompt=settings.system_prompt or None,
            name=settings.scenario if isinstance(settings, AgentSpec) else None,
        )

    def prepared(self, agent: Any, tools: list[Any], loop: ClientLoop) -> GraphRun:
        """Return a graph with its run settings."""
        return GraphRun(agent, loop)

    def converse(self, agent: Any, loop: ClientLoop) -> Conversation:
        """Return a new conversation with a graph."""
        return GraphConversation(loop)

    def notes(self, agent: Any) -> list[str]:
        """Return notes on a graph's memory in training."""
        return graphs.notes(agent)

    def gateway_model(self, models: GatewayModels) -> Any:
        """Return a chat model that sends its requests to the gateway."""
        from agentgym.integrations.langchain.gateway import GatewayChatOpenAI

        blueprint = models.blueprint
        return GatewayChatOpenAI.posting(
            models.posts,
            model=blueprint.model,
            base_url=blueprint.gateway + PLACEHOLDER,
            api_key=lambda: blueprint.api_key,
            http_async_client=models.http,
            http_client=models.sync_http,
            max_retries=0,
            cache=False,
        )

    def trained_model(
        self, trained: Trained, base_url: str | None = None, api_key: str | None = None
    ) -> Any:
        """Return a chat model that answers with a trained agent's weights."""
        self.check()
        from agentgym.integrations.langchain.model import RoleChatOpenAI

        endpoint = TrainedEndpoint.of(trained, base_url, api_key)
        return RoleChatOpenAI.at(endpoint, None if base_url is None else trained.roles)

    def with_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of a graph in which ``model`` replaces all chat models."""
        return self.on_model(agent, model)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of a graph in which ``model`` replaces all chat models."""
        from agentgym.integrations.langchain.rebound import rebound

        return rebound(agent, model)

    def limited(self, agent: Any, max_turns: int) -> Any:
        """Return a graph that ends where an agent calls its model too often."""
        from agentgym.integrations.langchain.export import limited

        return limited(agent, max_turns)
