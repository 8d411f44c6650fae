"""Export a trained agent as a compiled LangGraph agent."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphRecursionError
from langgraph.graph.state import CompiledStateGraph

from agentgym.core.agent import Trained
from agentgym.core.background import in_background
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import Tool
from agentgym.errors import ToolError
from agentgym.integrations.agent_import import make, takes_model
from agentgym.integrations.export import agent_and_tools
from agentgym.integrations.langchain.graphs import most_steps, require_graph, role_of
from agentgym.integrations.langchain.rebound import rebound


def export(
    trained: Trained,
    load_model: Callable[[], Any],
    *,
    tools: Sequence[Any] | None = None,
    agent: Any = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a trained agent as a compiled graph.

    ``load_model`` returns its chat model. The other arguments and the errors are those
    of ``TrainedAgent.to_langchain``.
    """
    found, origin, offered = agent_and_tools(
        trained, "to_langchain", bound_tool, agent=agent, tools=tools
    )
    spec = trained.spec
    model = load_model()
    graph: CompiledStateGraph[Any, Any, Any, Any]
    if found is None:
        graph = create_agent(
            model=model,
            tools=offered,
            system_prompt=spec.system_prompt or None,
            name=spec.scenario,
        )
    else:
        graph = make(found, origin, llm=model, tools=offered)
        require_graph(graph, origin)
        if not takes_model(found):
            own: CompiledStateGraph[Any, Any, Any, Any] = rebound(graph, model)
            return own
    return graph.with_config(
        recursion_limit=most_steps(graph, spec.max_turns),
        callbacks=[TurnLimit(spec.max_turns)],
    )


def bound_tool(tool: Tool) -> BaseTool:
    """Convert an AgentGym tool to a LangChain tool, for use outside of training."""

    async def call(**arguments: Any) -> str:
        try:
            return await tool(**arguments)
        except ToolError as error:
            return f"Error: {error}"

    def call_sync(**arguments: Any) -> str:
        return in_background(call(**arguments))

    return StructuredTool(
        name=tool.spec.name,
        description=tool.spec.description,
        args_schema=tool.spec.arguments,
        func=call_sync,
        coroutine=call,
    )


class TurnLimit(BaseCallbackHandler):
    """Ends a graph's run in which an agent makes more than ``max_turns`` model calls.

    Calls are counted per agent name, as returned by :func:`role_of`.
    """

    raise_error = True
    run_inline = True

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._calls: dict[UUID, Counter[str]] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Give a run its parent's call counter; if it has no parent, a new counter."""
        self._calls[run_id] = self._of(parent_run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a model call; raise GraphRecursionError beyond the limit."""
        calls = self._of(parent_run_id)
        role = role_of(metadata or {}) or DEFAULT_AGENT
        calls[role] += 1
        if calls[role] > self._max_turns:
            raise GraphRecursionError(
                f"The agent has called its model {self._max_turns} times without "
                "coming to an end, and was trained with that limit (max_turns)."
            )

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Delete the call counter of a run that has ended."""
        self._calls.pop(run_id, None)

    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Delete the call counter of a run that has failed."""
        self._calls.pop(run_id, None)

    def _of(self, parent: UUID | None) -> Counter[str]:
        nothing: Counter[str] = Counter()
        return nothing if parent is None else self._calls.get(parent, nothing)
