"""Run an agent's live tools where the agent calls them, in the framework's own run.

A tool that takes the run's context cannot run outside of it. So a tool that really runs
is called where its framework calls it, and the episode records it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from agentgym.core.tools import Tool, ToolSpec
from agentgym.integrations.redirect import holding

RunInPlace = Callable[[dict[str, Any]], Awaitable[Any]]

_PENDING: ContextVar[tuple[str, RunInPlace] | None] = ContextVar(
    "agentgym_run_in_place", default=None
)


def running_in_place(name: str, run: RunInPlace) -> AbstractContextManager[None]:
    """Let the live tool of this name run by ``run`` within."""
    return holding(_PENDING, (name, run))


def live_tool(spec: ToolSpec, run: RunInPlace) -> Tool:
    """Return a tool that runs where its framework calls it, else by ``run``."""

    async def call(**arguments: Any) -> Any:
        pending = _PENDING.get()
        chosen = run if pending is None or pending[0] != spec.name else pending[1]
        try:
            return await chosen(arguments)
        except SystemExit as end:
            raise RuntimeError(f"{spec.name} called sys.exit({end.code!r})") from None

    return Tool(spec, call)
