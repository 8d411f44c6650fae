"""What must be known of a compiled graph to run it."""

from typing import Any

from agentgym.errors import MissingExtraError, UnsupportedError


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
