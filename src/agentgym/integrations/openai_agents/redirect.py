"""Run copies instead of the Agents SDK's original agents, within a block.

This includes agents run by a tool or a guardrail. The patched methods are not public: a
test fails when a version changes them.
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
    """Run ``copied(agent)`` instead of every agent that is run within the block."""
    return holding(_COPIED, copied)


def patch_runs(module: ModuleType) -> None:
    """Patch the SDK's runner to run the copy from :func:`running`, if there is one."""
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
