"""The limit on the model calls of an agent that runs by itself."""

from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphRecursionError


class TurnLimit(BaseCallbackHandler):
    """Ends each run of a graph that calls its model too often.

    Args:
        max_turns: Model calls of one run.
    """

    raise_error = True
    run_inline = True

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._calls: dict[UUID, list[UUID]] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note whose calls those within a run are: the outermost run's."""
        self._calls[run_id] = self._of(parent_run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a model call.

        Raises:
            GraphRecursionError: It is one too many.
        """
        calls = self._of(parent_run_id)
        calls.append(run_id)
        if len(calls) > self._max_turns:
            raise GraphRecursionError(
                f"The agent has called its model {self._max_turns} times without "
                "coming to an end, and was trained with that limit (max_turns)."
            )

    def on_chain_end(
        self, outputs: dict[str, Any], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Forget a run that has ended."""
        self._calls.pop(run_id, None)

    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Forget a run that has failed."""
        self._calls.pop(run_id, None)

    def _of(self, parent: UUID | None) -> list[UUID]:
        return [] if parent is None else self._calls.get(parent, [])
