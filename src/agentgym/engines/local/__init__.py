"""The embedded engine: torch and transformers in this process, CPU or one GPU.

Importing this package loads neither; they come with the first name that needs them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentgym.engines.local.engine import LocalEngine
    from agentgym.engines.local.policy import LocalPolicy

__all__ = ["LocalEngine", "LocalPolicy"]


def __getattr__(name: str) -> Any:
    if name == "LocalEngine":
        from agentgym.engines.local.engine import LocalEngine

        return LocalEngine
    if name == "LocalPolicy":
        from agentgym.engines.local.policy import LocalPolicy

        return LocalPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
