"""ScenarioCard: a row in the list of scenarios, without importing their classes."""

from typing import NamedTuple


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
