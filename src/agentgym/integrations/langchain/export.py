"""Parts of a trained agent that is exported as a compiled LangGraph agent."""

from collections import Counter
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphRecursionError

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.integrations.langchain.graphs import most_steps, role_of


def limited(graph: Any, max_turns: int) -> Any:
    """Return a graph that ends where an agent calls its model too often."""
    steps = most_steps(graph, max_turns)
    return graph.with_config(recursion_limit=steps, callbacks=[TurnLimit(max_turns)])


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
