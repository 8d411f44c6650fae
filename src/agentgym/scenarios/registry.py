"""Find built-in scenarios, scenario packs on disk, and those of installed packages.

``BUILT_IN`` repeats attributes of the scenario classes, so that a list of scenarios can
be shown without a slow import of the classes. A test compares both.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from agentgym.scenarios.options import has_options, read_options, with_absolute_data
from agentgym.scenarios.packs import (
    PACK_FILE,
    is_path,
    is_tasks_file,
    locate_pack,
    pack_cards,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from agentgym.scenarios.base import Scenario

ENTRY_POINT_GROUP = "agentgym.scenarios"


class ScenarioCard(NamedTuple):
    """The data of a scenario that a list of scenarios shows.

    Attributes:
        target: Where the scenario is: ``module:class``, or the folder of a pack.
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
            "10 to 20 minutes on 2 cores",
            "agentgym.scenarios.coding.scenario:CodingScenario",
        ),
        ScenarioCard(
            "code_review",
            "Review small Python packages and report defects.",
            "intermediate",
            "10 to 20 minutes on 2 cores",
            "agentgym.scenarios.code_review.scenario:CodeReviewScenario",
        ),
        ScenarioCard(
            "qa_testing",
            "Write tests that kill mutants of Python code.",
            "intermediate",
            "10 to 20 minutes on 2 cores",
            "agentgym.scenarios.qa_testing.scenario:QaTestingScenario",
        ),
        ScenarioCard(
            "customer_support",
            "Help a shop's customers with orders, refunds and complaints.",
            "intermediate",
            "about 25 minutes on 2 cores",
            "agentgym.scenarios.customer_support.scenario:CustomerSupportScenario",
        ),
        ScenarioCard(
            "coding_team",
            "Lead a coding team: route, review and test the code of a generator.",
            "intermediate",
            "about 20 minutes on 2 cores",
            "agentgym.scenarios.coding_team.scenario:CodingTeamScenario",
        ),
        ScenarioCard(
            "bfcl",
            "Call the right functions: Berkeley Function Calling Leaderboard v4.",
            "advanced",
            "for real models; an hour and more, by the model",
            "agentgym.scenarios.bfcl.scenario:BfclScenario",
        ),
        ScenarioCard(
            "humaneval",
            "Complete Python functions: HumanEval.",
            "advanced",
            "for real models; minutes to hours, by the model",
            "agentgym.scenarios.benchmarks.scenario:HumanEvalScenario",
        ),
        ScenarioCard(
            "humaneval_plus",
            "Complete Python functions: HumanEval+, many more inputs.",
            "advanced",
            "for real models; minutes to hours, by the model",
            "agentgym.scenarios.benchmarks.scenario:HumanEvalPlusScenario",
        ),
        ScenarioCard(
            "mbpp",
            "Write small Python functions: MBPP, full or sanitized.",
            "advanced",
            "for real models; minutes to hours, by the model",
            "agentgym.scenarios.benchmarks.scenario:MbppScenario",
        ),
        ScenarioCard(
            "mbpp_plus",
            "Write small Python functions: MBPP+, many more inputs.",
            "advanced",
            "for real models; minutes to hours, by the model",
            "agentgym.scenarios.benchmarks.scenario:MbppPlusScenario",
        ),
        ScenarioCard(
            "livecodebench",
            "Solve contest problems in Python: LiveCodeBench.",
            "advanced",
            "for real models; minutes to hours, by the model",
            "agentgym.scenarios.benchmarks.scenario:LiveCodeBenchScenario",
        ),
        ScenarioCard(
            "multipl_e",
            "Complete functions in JavaScript, Go or Rust: MultiPL-E.",
            "advanced",
            "for real models; minutes to hours, by the model",
            "agentgym.scenarios.benchmarks.scenario:MultiPlEScenario",
        ),
    ]
}
"""The built-in scenarios by name, as ``agentgym scenarios list`` shows them."""


def scenario_cards() -> list[ScenarioCard]:
    """Return the data of all scenarios: built-in ones, packs, and installed ones.

    Nothing is imported, so an installed package's scenario has only the name of the
    package as its description.
    """
    cards = dict(BUILT_IN)
    for pack in pack_cards():
        if pack.problem:
            description = f"Cannot be loaded: {pack.problem}."
        elif pack.name in BUILT_IN:
            description = "Refused: a built-in scenario has this name; rename it."
        else:
            description = pack.description
        shown = f"{pack.name} ({pack.path})" if pack.name in BUILT_IN else pack.name
        cards[shown] = ScenarioCard(
            shown, description, pack.difficulty, pack.estimated_time, pack.path
        )
    for point in sorted(_entry_points(), key=lambda point: point.name):
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
    """Return a scenario's reference with absolute paths.

    It then selects the same scenario in any current folder.

    Args:
        reference: The scenario's name, with or without options, as in
            ``bfcl?data=wheel.whl``; a pack's path; or a tasks file with its tools.

    Raises:
        ScenarioError: A pack in ./scenarios has the name of a built-in scenario.
    """
    from agentgym.errors import ScenarioError

    if is_tasks_file(reference):
        from agentgym.scenarios.tool_tasks.scenario import absolute_source

        return absolute_source(reference)
    if has_options(reference):
        return with_absolute_data(reference)
    path = locate_pack(reference)
    if path is not None and reference in BUILT_IN:
        raise ScenarioError(
            f"The pack in {path} has the name of the built-in scenario {reference!r}. "
            "Rename its folder and its `name`."
        )
    return path or reference


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
        module, _, attribute = BUILT_IN[name].target.partition(":")
        made = getattr(import_module(module), attribute)
        scenario = made(**read_options(found, made.options)) if options else made()
    elif is_tasks_file(found):
        return _tasks_file(found)
    elif is_path(found):
        if locate_pack(found) is None:
            raise UsageError(
                f"There is no scenario pack at {reference}: name a folder that holds "
                f"{PACK_FILE}, or that file."
            )
        return _pack(found)
    else:
        points = [point for point in _entry_points() if point.name == found]
        if not points:
            raise ScenarioNotFoundError(found, scenario_names())
        try:
            scenario = points[0].load()()
        except (ImportError, AttributeError) as error:
            raise ScenarioError(
                f"Scenario {found!r} cannot be loaded from {points[0].value}: {error}."
            ) from error
    if not isinstance(scenario, Scenario):
        raise ScenarioError(
            f"Scenario {found!r} is not a subclass of agentgym.Scenario."
        )
    return scenario


def agents_of(reference: str) -> dict[str, str]:
    """Return a scenario's own agents as ``module:name``, by framework; may be empty.

    A built-in scenario is not instantiated, since this machine may lack the packages
    that the scenario needs.
    """
    name = reference.partition("?")[0]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].target.partition(":")
        found: dict[str, str] = getattr(import_module(module), attribute).agents
        return found
    if is_tasks_file(reference):
        return {}
    scenario = get_scenario(reference)
    scenario.close()
    return scenario.agents


def extras_of(reference: str) -> tuple[str, ...]:
    """Return the optional dependencies (extras) of agentgym that a scenario needs.

    For packs and scenarios of installed packages, the result is empty.

    Raises:
        UsageError: A tasks file cannot be read.
    """
    name = reference.partition("?")[0]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].target.partition(":")
        found: tuple[str, ...] = getattr(import_module(module), attribute).extras
        return found
    if is_tasks_file(reference):
        from agentgym.scenarios.tool_tasks.code_rewards import extras_of_file

        return extras_of_file(reference)
    return ()


def _tasks_file(reference: str) -> "Scenario":
    from agentgym.errors import ScenarioError
    from agentgym.scenarios.tool_tasks.scenario import load_source

    scenario = load_source(reference)
    if scenario.name in BUILT_IN:
        raise ScenarioError(
            f"A tasks file named {scenario.name!r} would be taken for the built-in "
            "scenario. Rename the file."
        )
    return scenario


def _pack(path: str) -> "Scenario":
    from agentgym.errors import ScenarioError
    from agentgym.scenarios.pack_loading import load_pack

    scenario = load_pack(path)
    if scenario.name in BUILT_IN:
        raise ScenarioError(
            f"The pack in {path} calls itself {scenario.name!r}, which is the name of "
            "a built-in scenario. Give it another `name`."
        )
    return scenario


def _entry_points() -> "list[EntryPoint]":
    """Return the entry points of scenarios in installed packages.

    Importing and searching ``importlib.metadata`` takes 40 ms. So the files of the
    packages are first searched for ``ENTRY_POINT_GROUP``, which takes 2 ms.
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
