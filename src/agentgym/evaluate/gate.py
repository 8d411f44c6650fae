"""Gates: metrics that an evaluation must reach, so that a CI can depend on it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from agentgym.errors import UsageError
from agentgym.evaluate.metrics import SHARES, MetricName, Metrics


@dataclass(frozen=True)
class Gate:
    """A share that must be reached.

    Attributes:
        metric: Its name.
        least: 0..1.
        by_low: Whether the lower end of its interval must reach it.
    """

    metric: MetricName
    least: float
    by_low: bool = False

    @classmethod
    def parse(cls, text: str, *, by_low: bool = False) -> "Gate":
        """Read ``0.95``, which means tool reliability, or ``pass_1=0.9``.

        Raises:
            UsageError: No such share, or no number in 0..1.
        """
        name, equals, number = text.rpartition("=")
        metric = name.strip() if equals else "tool_reliability"
        if metric not in SHARES:
            close = get_close_matches(metric, SHARES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"No share is named {metric!r}.{hint} Known: {', '.join(SHARES)}."
            )
        try:
            least = float(number)
        except ValueError:
            least = math.nan
        if not 0 <= least <= 1:
            raise UsageError(f"{text!r}: write a share from 0 to 1, e.g. {metric}=0.9.")
        return cls(metric, least, by_low)

    def miss(self, metrics: Metrics) -> str | None:
        """Return what is missing in words; None if the gate is passed.

        What was not measured passes no gate.
        """
        found = metrics[self.metric]
        name = self.metric.replace("_", " ").capitalize()
        if found.n == 0:
            return f"{name} was not measured, so it is not {100 * self.least:g} %."
        reached = found.low if self.by_low else found.value
        if reached >= self.least:
            return None
        what = (
            "The lower end of the interval of " + name.lower() if self.by_low else name
        )
        return f"{what}, {100 * reached:.1f} %, is below {100 * self.least:g} %."


def misses(gates: Sequence[Gate], metrics: Metrics) -> list[str]:
    """Return what is missing at each gate that is not passed."""
    return [missing for gate in gates if (missing := gate.miss(metrics)) is not None]
