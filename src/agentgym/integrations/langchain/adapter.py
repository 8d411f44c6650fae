"""The LangChain adapter: trains graphs, which LangGraph runs, and exports them."""

from functools import partial
from typing import Any

from agentgym.core.agent import Trained
from agentgym.core.tools import Tool, ToolSpec
from agentgym.integrations.agent_import import (
    load_agent,
    make,
    takes_model,
    takes_tools,
)
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
)
from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.gateway_models import GatewayModels
from agentgym.integrations.langchain import graphs
from agentgym.integrations.langchain.conversation import GraphConversation, GraphRun
from agentgym.integrations.registry import require
from agentgym.integrations.tool_sets import ToolSets
from agentgym.integrations.transport import PLACEHOLDER


class LangChainAgent(AgentLoop):
    """Runs compiled graphs; a worker's episodes share one graph per set of tools."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._models = GatewayModels(blueprint)
        self._llm = self._models.of("langchain")
        self._blueprint = blueprint
        origin = blueprint.agent.reference
        self._found = None if origin is None else load_agent(origin)
        if self._found is not None:
            self.way = (
                "the factory is given the model of training"
                if takes_model(self._found)
                else "all of its chat models are replaced by the model in training"
            )
        differs = self._found is None or takes_tools(self._found)
        self._runs = ToolSets(blueprint.tools, self._build, differs=differs)
        self.agent = self._runs.usual.graph

    def _build(self, specs: list[ToolSpec]) -> GraphRun:
        from agentgym.integrations.langchain.gateway import episode_tool

        tools = [episode_tool(spec) for spec in specs]
        blueprint, llm = self._blueprint, self._llm
        if blueprint.agent.reference is None:
            from langchain.agents import create_agent

            prompt = blueprint.system_prompt or None
            graph: Any = create_agent(model=llm, tools=tools, system_prompt=prompt)
            return GraphRun(graph, self._models)
        graph = make(self._found, blueprint.agent.reference, llm=llm, tools=tools)
        graphs.require_graph(graph, blueprint.agent.reference)
        self.notes = graphs.notes(graph)
        return GraphRun(graph, self._models)

    def converse(self) -> Conversation:
        """Return a new conversation with the graph."""
        return GraphConversation(self._runs.of_episode)

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._models.close()


class LangChainAdapter(FrameworkAdapter):
    """Adapter for compiled LangGraph graphs and LangChain >= 1.4's ``create_agent``."""

    name = "langchain"
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

    def check(self) -> None:
        """Check that langchain, langgraph and langchain-openai are installed."""
        modules = ["langchain", "langgraph", "langchain_openai"]
        require(modules, "langchain", "The LangChain adapter")

    def require_agent(self, agent: Any, origin: str) -> None:
        """Check that an object is a compiled graph."""
        graphs.require_graph(agent, origin)

    def tools_of(self, found: Any) -> list[Tool]:
        """Convert a LangChain tool to an AgentGym tool."""
        from langchain_core.tools import BaseTool

        if not isinstance(found, BaseTool):
            return super().tools_of(found)
        return [graphs.callable_tool(found)]

    def acts(self, value: Any) -> bool:
        """Return whether a value is a graph, or makes one."""
        return graphs.acts(value)

    def stand_in(self) -> Any:
        """Return a placeholder chat model, which is never called."""
        from langchain_openai import ChatOpenAI

        url = "http://nowhere.invalid/v1"
        return ChatOpenAI(model="none", base_url=url, api_key=lambda: "none")

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
        from agentgym.integrations.langchain.rebound import rebound

        return rebound(agent, model)

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the graph; its model calls go to the gateway."""
        self.check()
        return LangChainAgent(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a compiled graph."""
        self.check()
        from agentgym.integrations.langchain.export import export

        at = (options.pop(name, None) for name in ("base_url", "api_key"))
        model = partial(self.trained_model, trained, *at)
        return export(trained, model, **options)
