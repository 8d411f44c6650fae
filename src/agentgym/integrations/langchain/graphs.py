"""What must be known of a compiled graph to run it."""

from typing import Any

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.errors import MissingExtraError, UnsupportedError

_OF_CREATE_AGENT = "langchain_create_agent"


def running_role() -> str | None:
    """Return who of a team makes a model call here; None outside any graph.

    An agent of ``create_agent(name=...)`` has its name. In other graphs it is the node:
    of a graph within a graph the node that it runs in, else the one that calls.
    """
    from langchain_core.runnables.config import ensure_config

    told = ensure_config().get("metadata", {})
    if name := told.get("lc_agent_name"):
        return str(name)
    namespace = str(told.get("langgraph_checkpoint_ns") or "")  # outer:id|inner:id
    nodes = [part.partition(":")[0] for part in namespace.split("|") if part]
    if len(nodes) > 1:
        return nodes[-2]
    if nodes and told.get("ls_integration") == _OF_CREATE_AGENT:
        return DEFAULT_AGENT
    return nodes[0] if nodes else None


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
