"""The LangChain adapter: a real graph, trained in its own loop and given back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import Trained
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import (
    Adapter,
    AgentLoop,
    AgentRole,
    Blueprint,
    Conversation,
)
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.langchain.graphs import most_steps, require_graph
from agentgym.integrations.registry import load_factory, require
from agentgym.integrations.transport import (
    PLACEHOLDER,
    episode_client,
    sync_episode_client,
)

if TYPE_CHECKING:
    from types import CellType

    from langchain_core.tools import BaseTool


class LangChainAgent(AgentLoop):
    """One compiled graph for all episodes of a worker."""

    def __init__(self, blueprint: Blueprint) -> None:
        from langchain.agents import create_agent

        from agentgym.integrations.langchain.gateway import GatewayChatOpenAI

        self._client = episode_client(blueprint)
        self._sync_client = sync_episode_client(blueprint)
        llm = GatewayChatOpenAI(
            model=blueprint.model,
            base_url=blueprint.gateway + PLACEHOLDER,
            api_key=lambda: blueprint.api_key,
            http_async_client=self._client,
            http_client=self._sync_client,
            max_retries=0,
        )
        tools = [episode_tool(spec) for spec in blueprint.tools]
        if blueprint.factory is None:
            self._graph: Any = create_agent(
                model=llm, tools=tools, system_prompt=blueprint.system_prompt
            )
        else:
            self._graph = load_factory(blueprint.factory)(llm, tools)
            require_graph(self._graph, blueprint.factory)
        self._most_steps = most_steps(self._graph, blueprint.max_turns)

    def converse(self) -> Conversation:
        """Return a conversation that no message was said in."""
        return _GraphConversation(self._graph, self._most_steps)

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._client.aclose()
        self._sync_client.close()


class _GraphConversation(Conversation):
    """Runs a graph on all messages so far, once for each message of the user."""

    def __init__(self, graph: Any, most_steps: int) -> None:
        self._graph = graph
        self._limits = {"recursion_limit": most_steps}
        self._messages: list[Any] | None = []

    async def turn(self, message: str) -> str:
        from langchain_core.messages import HumanMessage
        from langgraph.errors import GraphRecursionError

        if self._messages is None:
            raise UnsupportedError(
                "The graph returns no messages, so the conversation cannot go on. "
                "Give its state a `messages` key, as MessagesState does."
            )
        asked = {"messages": [*self._messages, HumanMessage(message)]}
        try:
            state = await self._graph.ainvoke(asked, config=self._limits)
        except GraphRecursionError:
            raise EpisodeCut("max_turns") from None
        self._messages = list(state.get("messages", ())) or None
        return str(self._messages[-1].text) if self._messages else ""


class LangChainAdapter(Adapter):
    """LangChain >= 1.4: ``langchain.agents.create_agent`` and LangGraph graphs."""

    name = "langchain"
    preload = (
        "langchain.agents",
        "langchain_openai",
        "openai.resources",
        "agentgym.integrations.langchain.gateway",
    )

    def check(self) -> None:
        """Check that langchain, langgraph and langchain-openai are installed."""
        modules = ["langchain", "langgraph", "langchain_openai"]
        require(modules, "langchain", "The LangChain adapter")

    def roles(self, agent: Any) -> list[AgentRole]:
        """Return the one agent of a graph made by ``create_agent``."""
        require_graph(agent, repr(agent))
        node = agent.nodes.get("tools")
        if node is None:
            raise UnsupportedError(f"The graph {agent.name!r} has no tools node.")
        tools = [
            ToolSpec(tool.name, tool.description, tool.get_input_schema())
            for tool in node.bound.tools_by_name.values()
        ]
        cells = _model_cells(agent)
        prompt = cells["system_message"].cell_contents if cells else None
        return [
            AgentRole(
                name=agent.name,
                system_prompt=None if prompt is None else str(prompt.text),
                tools=tools,
                model=cells["model"].cell_contents if cells else None,
            )
        ]

    @contextmanager
    def rebound(self, agent: Any, model: Any) -> Iterator[str]:
        """Put another model into the closure of a ``create_agent`` graph."""
        require_graph(agent, repr(agent))
        cells = _model_cells(agent)
        if not cells:
            raise UnsupportedError(
                f"The model of the graph {agent.name!r} is not to be found. Give a "
                "factory instead: def make_agent(llm, tools)."
            )
        cell, old = cells["model"], cells["model"].cell_contents
        cell.cell_contents = model
        try:
            yield "the model in the closure of create_agent"
        finally:
            cell.cell_contents = old

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Build the graph whose model is the gateway."""
        self.check()
        return LangChainAgent(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return a trained agent as a compiled graph."""
        self.check()
        from agentgym.integrations.langchain.export import export

        return export(trained, **options)


def _model_cells(graph: Any) -> "dict[str, CellType]":
    """Return the closure of ``create_agent``'s model node; empty for other graphs.

    No public contract: a test tells when LangChain changes it.
    """
    node = graph.nodes.get("model")
    function = getattr(getattr(node, "bound", None), "func", None)
    if function is None or function.__closure__ is None:
        return {}
    names = function.__code__.co_freevars
    cells = dict(zip(names, function.__closure__, strict=True))
    return cells if {"model", "system_message"} <= cells.keys() else {}


def episode_tool(spec: ToolSpec) -> "BaseTool":
    """Return a LangChain tool that acts on the current episode's environment."""
    from langchain_core.tools import StructuredTool

    async def call(**arguments: Any) -> str:
        return await current_episode().use_tool(spec.name, arguments)

    def call_sync(**arguments: Any) -> str:
        return current_episode().use_tool_sync(spec.name, arguments)

    return StructuredTool(
        name=spec.name,
        description=spec.description,
        args_schema=spec.args_model,
        func=call_sync,
        coroutine=call,
    )
