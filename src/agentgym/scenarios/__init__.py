"""What agents train on: the base class, the registry, and one folder a scenario.

Names are imported when first used: listing scenarios must not load pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentgym.scenarios.base import Environment, Scenario
    from agentgym.scenarios.registry import get_scenario, scenario_names

_HOMES = {
    "Environment": "agentgym.scenarios.base",
    "Scenario": "agentgym.scenarios.base",
    "get_scenario": "agentgym.scenarios.registry",
    "scenario_names": "agentgym.scenarios.registry",
}

__all__ = ["Environment", "Scenario", "get_scenario", "scenario_names"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
