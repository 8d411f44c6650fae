"""Copy a graph with another chat model, for use outside of training."""

import copy
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from agentgym.integrations.langchain.graphs import require_graph
from agentgym.integrations.redirect import answering, watch

_WRITES = "_is_channel_writer"


def rebound(graph: Any, model: Any) -> Any:
    """Return a copy of a graph in which ``model`` replaces all chat models.

    The copy has the same nodes, tools, memory and callbacks. The original graph and its
    model objects do not change.
    """
    require_graph(graph, f"The {type(graph).__name__}")
    watch()
    made = copy.copy(graph)
    made.nodes = {name: _node(name, n, model) for name, n in graph.nodes.items()}
    return made


def _node(name: str, node: Any, model: Any) -> Any:
    """Return a copy of a node that uses ``model``, as do its conditional edges."""
    from langgraph.pregel._write import ChannelWrite

    edges = [
        each if isinstance(each, ChannelWrite) else _Answering(each, model)
        for each in node.writers
    ]
    inner = node.bound if name == "__start__" else _Answering(node.bound, model)
    return node.copy({"bound": inner, "writers": edges})


class _Answering(Runnable[Any, Any]):
    """Runs a node's original runnable, with ``model`` instead of its chat models.

    The attribute ``as_written`` is the original runnable.
    """

    def __init__(self, bound: Any, model: Any) -> None:
        self.as_written = bound
        self.name = getattr(bound, "name", None)
        if (writes := getattr(bound, _WRITES, None)) is not None:
            setattr(self, _WRITES, writes)  # the edges shown in a drawing
        self._models = {"langchain": model}.get

    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        with answering(self._models):
            return self.as_written.invoke(input, config, **options)

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        with answering(self._models):
            return await self.as_written.ainvoke(input, config, **options)
