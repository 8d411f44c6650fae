"""CallInPlace: run an agent's live tool at the point where the graph calls it.

A tool with ``ToolRuntime``, ``InjectedState`` or a config cannot run outside of its
graph, and a returned ``Command`` only changes the graph's state there. So a live tool
is run where the graph calls it, and the episode records it.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_PENDING: ContextVar["CallInPlace | None"] = ContextVar(
    "agentgym_call_in_place", default=None
)


class CallInPlace:
    """A tool call by a graph, with all arguments of the tool's function.

    Args:
        tool: The LangChain tool.
        args: Positional arguments of its ``_run``.
        named: Keyword arguments, injected ones included.

    Attributes:
        returned: The tool's own result; None until it ran.
    """

    def __init__(self, tool: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.tool = tool
        self.returned: Any = None
        self._args = args
        self._named = named

    @contextmanager
    def pending(self) -> Iterator[None]:
        """Let a live tool of this name run as this call within the block."""
        token = _PENDING.set(self)
        try:
            yield
        finally:
            _PENDING.reset(token)

    async def run(self) -> Any:
        """Run the tool, and return its result as the model reads it."""
        from langchain_core.runnables.config import ensure_config

        run = type(self.tool)._arun
        takes_config = "config" in inspect.signature(run).parameters
        given = {"config": ensure_config()} if takes_config else {}
        self.returned = await run(self.tool, *self._args, **given, **self._named)
        return _as_read(self.returned)


def call_in_place(name: str) -> CallInPlace | None:
    """Return the call of this tool that a graph is making, or None."""
    call = _PENDING.get()
    return call if call is not None and call.tool.name == name else None


def _as_read(returned: Any) -> Any:
    """Return the content of the messages in a tool's result, if there are any."""
    from langchain_core.messages import ToolMessage
    from langgraph.types import Command

    if isinstance(returned, Command):
        update = returned.update if isinstance(returned.update, dict) else {}
        said = [m for m in update.get("messages", ()) if isinstance(m, ToolMessage)]
        return said[-1].text if said else "done"
    if isinstance(returned, ToolMessage):
        return returned.text
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned[0]  # content and artifact
    return returned
