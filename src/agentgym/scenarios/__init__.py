"""What agents train on: the base class, the registry, and one folder a scenario."""

from agentgym.scenarios.base import Environment, Reward, Scenario
from agentgym.scenarios.registry import get_scenario, scenario_names

__all__ = ["Environment", "Reward", "Scenario", "get_scenario", "scenario_names"]
