"""Find built-in scenarios, scenario packs on disk, and those of installed packages.

``BUILT_IN`` repeats attributes of the scenario classes, so that a list of scenarios can
be shown without a slow import of the classes. A test compares both.
"""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from agentgym.core.registry import loaders
from agentgym.plugins import REGISTERED, points, registered
from agentgym.scenarios.packs import (
    DATA,
    PACK_FILE,
    ScenarioCard,
    has_options,
    is_path,
    is_tasks_file,
    locate_pack,
    pack_cards,
    pack_name,
    read_options,
    with_absolute_data,
)

if TYPE_CHECKING:
    from agentgym.scenarios.base import Scenario

ENTRY_POINT_GROUP = "agentgym.scenarios"
SHIPPED = Path(__file__).parents[1] / "packs"  # in a clone, a link to scenarios/

_CARDS = "agentgym.scenario_cards"
BUILT_IN = {
    card.name: card for name in REGISTERED[_CARDS] for card in registered(_CARDS, name)
}
"""The built-in scenarios by name, as ``agentgym scenarios list`` shows them."""


def scenario_cards() -> list[ScenarioCard]:
    """Return the data of all scenarios: built-in ones, packs, and installed ones."""
    # Nothing is imported, so an installed package's scenario has no other description.
    cards = dict(BUILT_IN)
    for pack in pack_cards():
        if _is_shipped(pack.target):
            continue
        if pack.name in BUILT_IN:
            why = "Refused: a built-in scenario has this name; rename it."
            shown = f"{pack.name} ({pack.target})"
            pack = pack._replace(name=shown, description=why)
        cards[pack.name] = pack
    for point in points(ENTRY_POINT_GROUP):
        if point.name not in cards:
            package = point.dist.name if point.dist else point.value
            cards[point.name] = ScenarioCard(
                point.name, f"From {package}.", "", "", point.value
            )
    return list(cards.values())


def scenario_names() -> list[str]:
    """Return the names of all scenarios, built-in ones first."""
    return [card.name for card in scenario_cards()]


def absolute_reference(reference: str) -> str:
    """Return a scenario's reference that is valid in any current folder."""
    from agentgym.errors import ScenarioError

    if is_tasks_file(reference):
        from agentgym.scenarios.tool_tasks.scenario import absolute_source

        return absolute_source(reference)
    if has_options(reference):
        return with_absolute_data(reference)
    path = locate_pack(reference)
    if path is not None and _is_shipped(path):
        return pack_name(path)
    if path is not None and reference in BUILT_IN:
        raise ScenarioError(
            f"The pack in {path} has the name of the built-in scenario {reference!r}. "
            "Rename its folder and its `name`."
        )
    return path or reference


def _is_shipped(pack: str) -> bool:
    """Return whether a pack's folder is one that comes with agentgym, as in a clone."""
    shipped = SHIPPED / pack_name(pack)
    return shipped.is_dir() and shipped.samefile(pack)


def class_of(name: str) -> "type[Scenario]":
    """Return the class of a built-in scenario."""
    found: type[Scenario] = resolve_name(BUILT_IN[name].target)
    return found


def data_of(reference: str) -> "Path | None":
    """Return a scenario's data: the option ``data``, the downloaded folder, or None."""
    if data := read_options(reference).get(DATA):
        return Path(data)
    name = reference.partition("?")[0]
    place = class_of(name).data_folder() if name in BUILT_IN else None
    return place if place is not None and place.is_dir() else None


def get_scenario(reference: str) -> "Scenario":
    """Return a new instance of a scenario.

    Args:
        reference: The name of a built-in scenario, of a pack in ./scenarios or of an
            installed package's scenario; the path of a pack's folder or file; or a
            tasks file with its tools, see :class:`~agentgym.core.task.TaskSource`.

    Raises:
        ScenarioNotFoundError: No scenario has this name. The message has the most
            similar name and all names.
        UsageError: The path is not a pack, an option is unknown, or the tasks file
            cannot be used.
        ScenarioError: The scenario cannot be loaded, or has a built-in scenario's name.
    """
    from agentgym.errors import ScenarioError, ScenarioNotFoundError, UsageError
    from agentgym.scenarios.base import Scenario

    found = absolute_reference(reference)
    name, _, options = found.partition("?")
    if name in BUILT_IN:
        made = class_of(name)
        return made(**read_options(found, made.options)) if options else made()
    if is_tasks_file(found):
        from agentgym.scenarios.tool_tasks.scenario import load_source

        return _of_own_name(load_source(found), name)
    if is_path(found):
        from agentgym.scenarios.pack_loading import load_pack

        if locate_pack(found) is None:
            raise UsageError(
                f"There is no scenario pack at {reference}: name a folder that holds "
                f"{PACK_FILE}, or that file."
            )
        return _of_own_name(load_pack(found), found)
    named = [p for p in points(ENTRY_POINT_GROUP) if p.name == found]
    if not named:
        raise ScenarioNotFoundError(found, scenario_names())
    try:
        scenario = named[0].load()()
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            f"Scenario {found!r} cannot be loaded from {named[0].value}: {error}."
        ) from error
    if not isinstance(scenario, Scenario):
        raise ScenarioError(
            f"Scenario {found!r} is not a subclass of agentgym.Scenario."
        )
    return scenario


def scenario_of(
    reference: str, groups: Mapping[str, Any], *, trains: bool = False
) -> "Scenario":
    """Return a scenario as plug-ins change it; ``groups`` are their settings by name.

    A plug-in registers a function under ``agentgym.scenario_changes``. It gets the
    scenario, its group of settings, and whether training takes tasks from it.
    """
    scenario = get_scenario(reference)
    for name, change in loaders("agentgym.scenario_changes").items():
        if given := groups.get(name):
            change()(scenario, given, trains=trains)
    return scenario


def agents_of(reference: str) -> dict[str, str]:
    """Return a scenario's own agents as ``module:name``, by framework; may be empty."""
    # Not instantiated: this machine may lack the packages that the scenario needs.
    name = reference.partition("?")[0]
    if name in BUILT_IN:
        return class_of(name).agents
    if is_tasks_file(reference):
        return {}
    scenario = get_scenario(reference)
    scenario.close()
    return scenario.agents


def extras_of(reference: str) -> tuple[str, ...]:
    """Return the extras of agentgym that a built-in scenario needs."""
    name = reference.partition("?")[0]
    if name in BUILT_IN:
        return class_of(name).extras
    if is_tasks_file(reference):
        found: tuple[str, ...] = registered("agentgym.code_rewards", "extras")(
            reference
        )
        return found
    return ()


def _of_own_name(scenario: "Scenario", path: str) -> "Scenario":
    """Refuse the scenario of a pack or a tasks file that is named like a built-in."""
    from agentgym.errors import ScenarioError

    if scenario.name in BUILT_IN:
        raise ScenarioError(
            f"The scenario of {path} would be taken for {scenario.name!r}, which is "
            "the name of a built-in scenario. Give it another name."
        )
    return scenario
