"""Run copies instead of the original Agent Framework agents, within a block.

This includes agents that a tool or a workflow runs. ``Agent.run`` is public, but
replacing it is not supported: a test fails when a version changes it.
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
    """Run ``copied(agent)`` instead of every agent that is run within the block."""
    return holding(_COPIED, copied)


def patch_agents(module: ModuleType) -> None:
    """Patch ``Agent.run`` to run the copy from :func:`running`, if there is one."""
    kind: Any = module.Agent
    run = kind.run

    @wraps(run)
    def routed(self: Any, *args: Any, **named: Any) -> Any:
        refuse_while_importing()
        copied = _COPIED.get()
        return run(self if copied is None else copied(self), *args, **named)

    kind.run = routed
