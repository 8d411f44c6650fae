"""A run's result as it is shown: words and table cells, apart from how they are drawn.

result.json keeps them, so that showing a result computes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Span = tuple[str, str]
"""A text, and its style in the terminal."""
LEDGER_HEAD = ("role", "model calls", "trained", "masked", "dropped")
METRICS_HEAD = ("role", "right tool", "reliable", "calls", "tokens", "cut")
METRICS_NOTE = (
    "Calls and tokens are per rollout of the team; reliable is the share of its tool "
    "calls, cut that of rollouts in which it came to its limit of turns."
)
CHANGES_NOTE = f"Held-out tasks, before → after. {METRICS_NOTE}"
TO = " → "
WARM = "warm start"
"""Title of the column for metrics after the warm start, between before and after."""
NOT_BETTER = "It is not better: do not use it yet."


@dataclass(frozen=True)
class MetricRow:
    """One metric before and after training, formatted as texts."""

    label: str
    before: str  # value and interval
    after: str
    gain: str  # in points for shares, in percent for costs
    clear: int  # 1 if significantly better, -1 if worse, else 0; paired if possible
    interval: str = ""  # of the gain, in brackets; empty if unknown
    warm: str = ""  # after a warm start, before training; empty without one
    change: float = 0.0  # after - before
    warm_gain: str = ""  # by the warm start, with its interval; empty without one
    own_gain: str = ""  # by training after the warm start, with its interval

    @property
    def full_gain(self) -> str:
        """The gain, followed by its confidence interval."""
        return f"{self.gain} {self.interval}".strip()


@dataclass(frozen=True)
class Compared:
    """Metrics of two measurements; ``size`` is the number of tasks and rollouts."""

    size: str
    rows: Sequence[MetricRow]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Return the table that was written as JSON."""
        return cls(data["size"], [MetricRow(**row) for row in data["rows"]])


@dataclass(frozen=True, kw_only=True)
class ShownResult:
    """All words and tables of a run's result.

    Attributes:
        main: Metrics on the main held-out tasks; ``further``: on other sets, by name.
        warm_start: A sentence on the warm start; empty without one.
        role_calls: A row for each role of a team; empty for a single agent.
        before: pass^1, 0..1, before training, ``validations`` during it, by step, and
            ``after`` it.
        next_steps: What to do instead of using the agent; empty if it is better.
        use: Code that uses the agent.
    """

    main: Compared
    warm_start: str
    families: Sequence[MetricRow]
    further: Mapping[str, Compared]
    ledger: Sequence[Span]
    forgetting: Sequence[Span]
    role_calls: Sequence[Sequence[str]]
    role_metrics: Sequence[Sequence[str]]
    before: float
    validations: Sequence[tuple[int, float]]
    after: float
    verdict: Sequence[Span]
    spent: str
    saved: str
    next_steps: Sequence[str]
    use: str

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """Return the result that was written as JSON."""
        tables = {
            "main": Compared.read(data["main"]),
            "families": [MetricRow(**row) for row in data["families"]],
            "further": {
                name: Compared.read(part) for name, part in data["further"].items()
            },
        }
        return cls(**{**data, **tables})
