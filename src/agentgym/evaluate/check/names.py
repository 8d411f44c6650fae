"""The names that success criteria and trainable components of a scenario may have."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from agentgym.core.components import Component
from agentgym.evaluate.metrics import SHARES, MetricName
from agentgym.scenarios.base import Scenario

CRITERIA: dict[str, MetricName] = {
    "success_rate": "pass_1",
    **{name: name for name in SHARES},
}
"""The metric of each name that a scenario's success criteria may use."""
REPORTED_ONLY = {"cost_reduction"}
"""Criteria that training does not wait for."""
COMPONENTS = {*map(str, Component), "tool_execution"}
"""Tools' results, ``tool_execution``, are never the policy's own text."""


def unknown_names(scenario: Scenario) -> Iterator[str]:
    """Yield what is wrong with names that would only be looked up while training."""
    yield from _unknown(
        "success_criteria()", scenario.success_criteria(), {*CRITERIA, *REPORTED_ONLY}
    )
    yield from _unknown(
        "define_trainable_components()",
        scenario.define_trainable_components(),
        COMPONENTS,
    )


def _unknown(where: str, used: Iterable[str], known: set[str]) -> Iterator[str]:
    for name in used:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ";"
            yield f"{where} has {name!r}{hint} Known: {', '.join(sorted(known))}"
