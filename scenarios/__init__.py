"""The scenarios that agentgym ships, and their rows in the list of scenarios."""

from agentgym.scenarios.packs import ScenarioCard

_FAST, _SLOW = "10 to 20 minutes on 2 cores", "about 25 minutes on 2 cores"
_WARM = "about 10 minutes on 2 cores, with a warm start"


def _card(
    name: str, about: str, time: str, level: str = "intermediate"
) -> ScenarioCard:
    kind = "".join(map(str.capitalize, name.split("_")))
    target = f"{__name__}.{name}.scenario:{kind}Scenario"
    return ScenarioCard(name, about, level, time, target)


CARDS = [
    _card(
        "coding",
        "Find, read, edit, test and repair code in a small Python package.",
        _FAST,
        "beginner",
    ),
    _card("code_review", "Review small Python packages and report defects.", _FAST),
    _card("qa_testing", "Write tests that kill mutants of Python code.", _FAST),
    _card(
        "customer_support",
        "Help a shop's customers with orders, refunds and complaints.",
        _SLOW,
    ),
    _card(
        "flight_booking", "Search, book, change and cancel flights by the rules.", _WARM
    ),
]
