"""Run copies instead of the original Agent Framework agents, within a block.

Agents that a tool or a workflow runs are replaced too. ``Agent.run`` is public, but the
framework does not support patching it: a test fails when a new version changes it.
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
    """Run ``copied(agent)`` instead of each ``agent`` within the block."""
    return holding(_COPIED, copied)


def patch_agents(module: ModuleType) -> None:
    """Patch ``Agent.run``: within :func:`running`, it runs a copy of the agent."""
    kind: Any = module.Agent
    run = kind.run

    @wraps(run)
    def routed(self: Any, *args: Any, **named: Any) -> Any:
        refuse_while_importing()
        copied = _COPIED.get()
        return run(self if copied is None else copied(self), *args, **named)

    kind.run = routed
