"""Run an agent's live tools where the agent calls them, with injected arguments.

A tool with ``ToolRuntime``, ``InjectedState`` or a config cannot run outside of its
graph, and one that returns a ``Command`` changes the graph's state only there. So a
tool that really runs is called where the graph calls it, and the episode records it.
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
    """A tool call that a graph makes, with all arguments of the tool's function.

    Args:
        tool: LangChain's, as its author wrote it.
        args: Positional arguments of its ``_run``.
        named: The others, injected ones among them.

    Attributes:
        returned: The tool's own result; None while it did not run.
    """

    def __init__(self, tool: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.tool = tool
        self.returned: Any = None
        self._args = args
        self._named = named

    @contextmanager
    def pending(self) -> Iterator[None]:
        """Let a live tool of this name run as this call within."""
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
    """Return the call of this tool that a graph is making, None outside of one."""
    call = _PENDING.get()
    return call if call is not None and call.tool.name == name else None


def _as_read(returned: Any) -> Any:
    """Return the content of the messages that a tool's result holds, if it does."""
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
