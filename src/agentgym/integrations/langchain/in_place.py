"""CallInPlace: run an agent's live tool at the point where the graph calls it.

A live tool is a tool of the user that really runs in training. If it takes
``ToolRuntime``, ``InjectedState`` or a config, it cannot run outside of its graph. A
``Command`` that the tool returns also takes effect only in its graph. So the tool is
run where the graph calls it, and the episode records the call.
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
        args: Positional arguments of the tool's ``_run``.
        named: Keyword arguments, including injected arguments.

    Attributes:
        returned: The tool's own result; None until the tool has run.
    """

    def __init__(self, tool: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.tool = tool
        self.returned: Any = None
        self._args = args
        self._named = named

    @contextmanager
    def pending(self) -> Iterator[None]:
        """Make :func:`call_in_place` return this call within the block."""
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
    """Return the graph's current call of the tool ``name``; None if there is none."""
    call = _PENDING.get()
    return call if call is not None and call.tool.name == name else None


def _as_read(returned: Any) -> Any:
    """Return a tool's result as the model reads it: the text of its message, if any."""
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
