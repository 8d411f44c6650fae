"""Finds scenarios by name: the built-in ones and those of entry points."""

from importlib import import_module
from importlib.metadata import entry_points

from agentgym.errors import ScenarioError, ScenarioNotFoundError
from agentgym.scenarios.base import Scenario

ENTRY_POINT_GROUP = "agentgym.scenarios"

_BUILT_IN = {
    "coding": "agentgym.scenarios.coding.scenario:CodingScenario",
}


def scenario_names() -> list[str]:
    """Return the names of all scenarios, built-in ones first."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*_BUILT_IN, *sorted(others - set(_BUILT_IN))]


def get_scenario(name: str) -> Scenario:
    """Return a new instance of the scenario named ``name``.

    Raises:
        ScenarioNotFoundError: Names the nearest and those available.
        ScenarioError: The entry point does not lead to a Scenario.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        scenario = getattr(import_module(module), attribute)()
    else:
        points = entry_points(group=ENTRY_POINT_GROUP, name=name)
        if not points:
            raise ScenarioNotFoundError(name, scenario_names())
        scenario = next(iter(points)).load()()
    if not isinstance(scenario, Scenario):
        raise ScenarioError(f"Scenario {name!r} is no agentgym.Scenario subclass.")
    return scenario
