"""Redirect runs of Agent Framework's agents to their copies within a block.

This includes agents run by a tool or a part of a workflow. Replacing the (public)
method is not officially supported: a test fails when a version changes it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any

from agentgym.integrations.agent_import import refuse_while_importing
from agentgym.integrations.redirect import holding

_COPIED: ContextVar[Callable[[Any], Any] | None] = ContextVar(
    "agentgym_agent_framework", default=None
)


def running(copied: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Redirect every run within the block to ``copied(agent)``."""
    return holding(_COPIED, copied)


def patch_agents(module: ModuleType) -> None:
    """Patch the agents so that each run looks for a copy to run."""
    kind: Any = module.Agent
    run = kind.run

    @wraps(run)
    def routed(self: Any, *args: Any, **named: Any) -> Any:
        refuse_while_importing()
        copied = _COPIED.get()
        return run(self if copied is None else copied(self), *args, **named)

    kind.run = routed
