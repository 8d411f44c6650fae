"""Run an agent's live tools at the point where the framework calls them.

A live tool is a tool of the user that really runs in training. If it takes the context
of the agent's run, it cannot run outside of that run. So a live tool is run where its
framework calls it, and the episode records the call.
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
    """Make the live tool ``name`` call ``run`` within the block."""
    return holding(_PENDING, (name, run))


_AS_THEY_ARE: ContextVar[bool] = ContextVar("agentgym_real_tools", default=False)


def tools_as_they_are() -> AbstractContextManager[None]:
    """Run tools within the block with their own code, even in an episode."""
    return holding(_AS_THEY_ARE, True)


def are_as_they_are() -> bool:
    """Return whether the caller is in a block of :func:`tools_as_they_are`."""
    return _AS_THEY_ARE.get()


def live_tool(spec: ToolSpec, run: RunInPlace, returned: Any = None) -> Tool:
    """Return an AgentGym tool with the schema ``spec`` that calls ``run``.

    Within :func:`running_in_place`, it calls the function of that block instead.
    ``returned`` is the type of the results, or None if unknown. Stubs, which replace
    tools in training, invent results of this type.
    """

    async def call(**arguments: Any) -> Any:
        pending = _PENDING.get()
        chosen = run if pending is None or pending[0] != spec.name else pending[1]
        try:
            return await chosen(arguments)
        except SystemExit as end:
            raise RuntimeError(f"{spec.name} called sys.exit({end.code!r})") from None

    if returned is not None:
        call.__annotations__["return"] = returned
    return Tool(spec, call, as_written=True)
