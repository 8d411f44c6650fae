"""Criteria: minimum values of metrics that a scenario or a user requires."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from agentgym.core.components import TRAIN_TOKENS, Component
from agentgym.errors import UsageError
from agentgym.evaluate.metrics import SHARES, MetricName, Metrics
from agentgym.scenarios.base import Scenario

CRITERIA: dict[str, MetricName] = {"success_rate": "pass_1", **{s: s for s in SHARES}}
"""The metric of each name that a scenario may use in its success criteria."""
_SUCCESS = ("success_rate", "pass_1", "pass_k")
_REPORTED_ONLY = {"cost_reduction"}  # a criterion that training does not wait for
_COMPONENTS = {*map(str, Component), "tool_execution"}  # never in the text


def goal_of(criteria: Mapping[str, float]) -> dict[MetricName, float]:
    """Return the minimum of each metric that training waits for.

    The criterion ``cost_reduction`` is left out: training does not wait for it.
    """
    return {
        CRITERIA[name]: least
        for name, least in criteria.items()
        if name in CRITERIA and least > 0
    }


@dataclass(frozen=True)
class Goal:
    """A scenario's success criterion: the minimum (``least``) of a share, 0..1."""

    name: str
    least: float
    reached: float | None

    @property
    def holds(self) -> bool:
        """Whether the measured share is at least the required minimum."""
        return self.reached is not None and self.reached >= self.least


def compare_goals(
    criteria: Mapping[str, float], before: Metrics, after: Metrics
) -> list[Goal]:
    """Return each success criterion with the share that was measured after training.

    For the criterion ``cost_reduction``, this is the share of the cost per rollout that
    training saves: of prompt and sampled tokens, at the prices ``token_prices``.
    """
    goals = []
    for name, least in criteria.items():
        reached = None
        if name in CRITERIA:
            found = after[CRITERIA[name]]
            reached = found.value if found.n else None
        elif name in _REPORTED_ONLY:
            reached = _cost_reduction(before, after)
        goals.append(Goal(name, least, reached))
    return goals


def _cost_reduction(before: Metrics, after: Metrics) -> float | None:
    """Return the share of the cost per rollout that is saved; None if not measured."""
    old, new = before.token_cost, after.token_cost
    return 1 - new.value / old.value if old.value > 0 and new.n else None


def flaws(scenario: Scenario) -> Iterator[str]:
    """Yield faults in a scenario's success criteria and choice of trained tokens."""
    if (tokens := scenario.train_tokens) not in TRAIN_TOKENS:
        yield f"train_tokens is {tokens!r}, not one of {', '.join(TRAIN_TOKENS)}"
        return
    criteria = scenario.success_criteria()
    components = scenario.define_trainable_components()
    for where, used, known in (
        ("success_criteria", criteria, {*CRITERIA, *_REPORTED_ONLY}),
        ("define_trainable_components", components, _COMPONENTS),
    ):
        for name in [name for name in used if name not in known]:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ";"
            yield f"{where}() has {name!r}{hint} Known: {', '.join(sorted(known))}"
    for name, least in criteria.items():
        if not (isinstance(least, int | float) and 0 <= least <= 1):
            yield f"success_criteria() has {name!r}: {least!r}, not a share from 0 to 1"
            return
    if not any(criteria.get(name, 0) > 0 for name in _SUCCESS):
        yield (
            "success_criteria() asks for no task success: an agent that makes one "
            "harmless call and gives up is perfectly reliable; add 'success_rate': 0.9"
        )


@dataclass(frozen=True)
class Gate:
    """A required minimum (``least``) of a metric, 0..1, from the command line.

    If ``by_low`` is true, the lower end of the 95 % interval must reach the minimum; if
    not, only the measured value.
    """

    metric: MetricName
    least: float
    by_low: bool = False

    @classmethod
    def parse(cls, text: str, *, by_low: bool = False) -> Self:
        """Parse ``METRIC=MINIMUM``; a number alone is a minimum of tool reliability."""
        name, equals, number = text.rpartition("=")
        metric = name.strip() if equals else "tool_reliability"
        if metric not in SHARES:
            close = get_close_matches(metric, SHARES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"Unknown share {metric!r}.{hint} Known: {', '.join(SHARES)}."
            )
        try:
            least = float(number)
        except ValueError:
            least = math.nan
        if not 0 <= least <= 1:
            raise UsageError(f"{text!r}: write a share from 0 to 1, e.g. {metric}=0.9.")
        return cls(metric, least, by_low)

    def miss(self, metrics: Metrics) -> str | None:
        """Return a message if the metric is below the minimum, else None."""
        found = metrics[self.metric]
        name = self.metric.replace("_", " ")
        least = f"{100 * self.least:g} %"
        if found.n == 0:
            return f"{name.capitalize()} was not measured, so it is not {least}."
        reached = found.low if self.by_low else found.value
        if reached >= self.least:
            return None
        what = f"The lower end of the interval of {name}" if self.by_low else name
        return f"{what.capitalize()}, {100 * reached:.1f} %, is below {least}."
