"""Run copies instead of the Agents SDK's original agents, within a block.

Agents that a tool or a guardrail runs are replaced too. The patched methods are not
public: a test fails when a new version of the SDK changes them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from agentgym.integrations.agent_import import refuse_while_importing
from agentgym.integrations.redirect import holding

_COPIED: ContextVar[Callable[[Any], Any] | None] = ContextVar(
    "agentgym_openai_agents", default=None
)


def running(copied: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Run ``copied(agent)`` instead of each ``agent`` within the block."""
    return holding(_COPIED, copied)


def patch_runs(module: ModuleType) -> None:
    """Patch the SDK's runner: within :func:`running`, it runs a copy of the agent."""
    runner: Any = getattr(module, "AgentRunner", None)
    if runner is None:  # a user's own package named agents
        return
    for name in ("run", "run_sync", "run_streamed"):
        setattr(runner, name, _routed(getattr(runner, name)))


def _routed(run: Callable[..., Any]) -> Callable[..., Any]:
    def routed(self: Any, starting_agent: Any, *args: Any, **named: Any) -> Any:
        refuse_while_importing()
        copied = _COPIED.get()
        agent = starting_agent if copied is None else copied(starting_agent)
        return run(self, agent, *args, **named)

    return routed
