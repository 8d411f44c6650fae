"""Finds scenarios by name: the built-in ones and those of entry points.

What lists show of a built-in scenario stands here as well as on its class, so that
listing imports neither the class nor pydantic; a test keeps the two equal.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from agentgym.scenarios.base import Scenario

ENTRY_POINT_GROUP = "agentgym.scenarios"


class ScenarioCard(NamedTuple):
    """What a list says of a scenario.

    Attributes:
        target: ``module:class``.
    """

    name: str
    description: str
    difficulty: str
    estimated_time: str
    target: str


BUILT_IN = {
    card.name: card
    for card in [
        ScenarioCard(
            "coding",
            "Find, read, edit, test and repair code in a small Python package.",
            "beginner",
            "about 5 minutes on 2 cores",
            "agentgym.scenarios.coding.scenario:CodingScenario",
        ),
    ]
}


def scenario_cards() -> list[ScenarioCard]:
    """Return what lists show: built-in scenarios first, then installed ones.

    An installed scenario is named with the package that brings it; nothing of it
    is imported.
    """
    cards = list(BUILT_IN.values())
    for point in sorted(_entry_points(), key=lambda point: point.name):
        if point.name not in BUILT_IN:
            package = point.dist.name if point.dist else point.value
            cards.append(
                ScenarioCard(point.name, f"From {package}.", "", "", point.value)
            )
    return cards


def scenario_names() -> list[str]:
    """Return the names of all scenarios, built-in ones first."""
    return [card.name for card in scenario_cards()]


def get_scenario(name: str) -> "Scenario":
    """Return a new instance of the scenario named ``name``.

    Raises:
        ScenarioNotFoundError: Names the nearest and those available.
        ScenarioError: The entry point does not lead to a Scenario.
    """
    from agentgym.errors import ScenarioError, ScenarioNotFoundError
    from agentgym.scenarios.base import Scenario

    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].target.partition(":")
        scenario = getattr(import_module(module), attribute)()
    else:
        points = [point for point in _entry_points() if point.name == name]
        if not points:
            raise ScenarioNotFoundError(name, scenario_names())
        try:
            scenario = points[0].load()()
        except (ImportError, AttributeError) as error:
            raise ScenarioError(
                f"Scenario {name!r} cannot be loaded from {points[0].value}: {error}."
            ) from error
    if not isinstance(scenario, Scenario):
        raise ScenarioError(f"Scenario {name!r} is no agentgym.Scenario subclass.")
    return scenario


def _entry_points() -> "list[EntryPoint]":
    """Return the scenarios of installed packages.

    importlib.metadata takes 40 ms to import and search, so installed packages are
    first looked through for the group's name, which takes 2.
    """
    if not any(map(_declares_scenarios, sys.path)):
        return []
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINT_GROUP))


def _declares_scenarios(folder: str) -> bool:
    try:
        entries = [entry.path for entry in os.scandir(folder or ".")]
    except OSError:
        return False
    for path in entries:
        if path.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(path, "entry_points.txt"), "rb") as file:
                    if ENTRY_POINT_GROUP.encode() in file.read():
                        return True
            except OSError:
                continue
    return False
