"""Tool calls that run where an agent's framework makes them."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

RunInPlace = Callable[[dict[str, Any]], Awaitable[Any]]

PENDING: ContextVar[tuple[str, RunInPlace] | None] = ContextVar(
    "agentgym_run_in_place", default=None
)
"""The tool whose call a framework is making, and the function that runs the call."""


def pending_run(name: str) -> RunInPlace | None:
    """Return the function that runs the current call of a tool; None outside of one."""
    pending = PENDING.get()
    return None if pending is None or pending[0] != name else pending[1]
