"""The LangChain adapter: a real ``create_agent`` graph, trained and given back."""

from typing import TYPE_CHECKING, Any

from agentgym.core.tools import ToolSpec
from agentgym.errors import MissingExtraError, UnsupportedError
from agentgym.integrations.base import Adapter, Blueprint, EpisodeCut, RunnableAgent
from agentgym.integrations.episode import current_episode
from agentgym.integrations.registry import load_factory, require
from agentgym.integrations.transport import PLACEHOLDER, episode_client

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool

_CUTS = {"context_length_exceeded": "context_overflow", "max_turns": "max_turns"}


class LangChainAgent(RunnableAgent):
    """One compiled graph for all episodes of a worker."""

    def __init__(self, blueprint: Blueprint) -> None:
        from langchain.agents import create_agent

        from agentgym.integrations.langchain.gateway import GatewayChatOpenAI

        self._client = episode_client(
            blueprint.connections, max_turns=blueprint.max_turns
        )
        llm = GatewayChatOpenAI(
            model=blueprint.model,
            base_url=blueprint.gateway + PLACEHOLDER,
            api_key=lambda: blueprint.api_key,
            http_async_client=self._client,
            max_retries=0,
        )
        tools = [episode_tool(spec) for spec in blueprint.tools]
        if blueprint.factory is None:
            self._graph = create_agent(
                model=llm, tools=tools, system_prompt=blueprint.system_prompt
            )
        else:
            self._graph = load_factory(blueprint.factory)(llm, tools)
            require_graph(self._graph, blueprint.factory)
        self._max_turns = blueprint.max_turns

    async def run(self, instruction: str) -> None:
        """Run the graph on the conversation, once for each message of the user.

        Raises:
            UnsupportedError: The user goes on, and the graph has lost the messages.
        """
        from langchain_core.messages import HumanMessage

        episode = current_episode()
        messages: list[Any] = [HumanMessage(instruction)]
        while True:
            messages = await self._invoke(messages)
            if episode.model_calls > self._max_turns:
                raise EpisodeCut("max_turns")  # and the graph made up an answer
            reply = episode.user_reply(str(messages[-1].text) if messages else "")
            if reply is None:
                return
            if not messages:
                raise UnsupportedError(
                    "The graph returns no messages, so the conversation cannot go on. "
                    "Give its state a `messages` key, as MessagesState does."
                )
            messages = [*messages, HumanMessage(reply)]

    async def _invoke(self, messages: list[Any]) -> list[Any]:
        """Run the graph until it answers; return all messages of its last state."""
        from langgraph.errors import GraphRecursionError
        from openai import BadRequestError

        limits: RunnableConfig = {
            "recursion_limit": most_steps(self._graph, self._max_turns)
        }
        try:
            state = await self._graph.ainvoke({"messages": messages}, config=limits)
        except GraphRecursionError:
            raise EpisodeCut("max_turns") from None
        except BadRequestError as error:
            if error.code not in _CUTS:
                raise
            raise EpisodeCut(_CUTS[error.code]) from None
        return list(state.get("messages", ()))

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._client.aclose()


class LangChainAdapter(Adapter):
    """LangChain >= 1.4: ``langchain.agents.create_agent`` and LangGraph graphs."""

    name = "langchain"
    extra = "langchain"

    def check(self) -> None:
        """Check that langchain, langgraph and langchain-openai are installed."""
        modules = ["langchain", "langgraph", "langchain_openai"]
        require(modules, "langchain", "The LangChain adapter")

    def extract_tools(self, agent: Any) -> list[ToolSpec]:
        """Return the tools of a graph made by ``create_agent``.

        Raises:
            UnsupportedError: The graph has no ``tools`` node.
        """
        require_graph(agent, repr(agent))
        node = agent.nodes.get("tools")
        if node is None:
            raise UnsupportedError(f"The graph {agent.name!r} has no tools node.")
        return [
            ToolSpec(tool.name, tool.description, tool.get_input_schema())
            for tool in node.bound.tools_by_name.values()
        ]

    def create_environment(self, blueprint: Blueprint) -> RunnableAgent:
        """Build the graph whose model is the gateway.

        Raises:
            MissingExtraError: LangChain is not installed.
            UsageError: The user's factory does not work.
        """
        self.check()
        return LangChainAgent(blueprint)

    def wrap_agent(self, trained: Any, **options: Any) -> Any:
        """Return a ``TrainedAgent`` as a compiled graph."""
        return trained.to_langchain(**options)


def episode_tool(spec: ToolSpec) -> "BaseTool":
    """Return a LangChain tool that acts on the current episode's environment."""
    from langchain_core.tools import StructuredTool

    async def call(**arguments: Any) -> str:
        return await current_episode().call_tool(spec.name, arguments)

    return StructuredTool(
        name=spec.name,
        description=spec.description,
        args_schema=spec.args_model,
        coroutine=call,
    )


def most_steps(graph: Any, turns: int) -> int:
    """Return LangGraph's limit of steps for a graph whose model calls are counted.

    It ends a graph that goes round without calling its model, and no other: in a turn
    each node, the start and the end among them, has its step.
    """
    return (len(graph.nodes) + 2) * turns


def require_graph(graph: Any, origin: str) -> None:
    """Check that ``graph`` is a compiled LangGraph graph.

    Raises:
        MissingExtraError: LangGraph is not installed.
        UnsupportedError: It is something else; says what.
    """
    try:
        from langgraph.graph.state import CompiledStateGraph
    except ImportError:
        raise MissingExtraError("langchain", "The LangChain adapter") from None
    if not isinstance(graph, CompiledStateGraph):
        raise UnsupportedError(
            f"{origin} gave a {type(graph).__name__}, not a compiled graph. Return "
            "what langchain.agents.create_agent or StateGraph.compile returns."
        )
