"""Before and after, row by row: shared by the terminal's table and the report."""

from dataclasses import dataclass

from agentgym.evaluate.compare import are_paired, compare
from agentgym.evaluate.intervals import UNMEASURED, Estimate
from agentgym.evaluate.metrics import MetricName, Metrics
from agentgym.ui.words import number, number_span, share_span


@dataclass(frozen=True)
class Row:
    """One metric before and after training.

    Attributes:
        label: What is measured.
        before: Value and interval; likewise ``after``.
        gain: The difference, in points for shares, in per cent for costs.
        clear: 1 if better and -1 if worse beyond chance, else 0: by the paired
            interval of the difference where tasks are the same, else beyond both
            intervals.
        interval: Of the gain, in brackets; empty if it is not known.
    """

    label: str
    before: str
    after: str
    gain: str
    clear: int
    interval: str = ""

    @property
    def full_gain(self) -> str:
        """The gain with its interval."""
        return f"{self.gain} {self.interval}".strip()


@dataclass(frozen=True)
class _Measure:
    label: str
    name: MetricName
    kind: str  # "share", "score" (higher is better) or "cost" (lower is better)
    scale: float = 1.0

    def of(self, metrics: Metrics) -> Estimate:
        return _scaled(metrics[self.name], self.scale)


def _measures(k: int) -> list[_Measure]:
    """Return what is compared; pass^k only where it is another than pass^1."""
    return [
        _Measure("right tool", "right_tool", "share"),
        _Measure("right arguments", "right_arguments", "share"),
        _Measure("pass^1", "pass_1", "share"),
        *([_Measure(f"pass^{k}", "pass_k", "share")] if k > 1 else []),
        _Measure("tool reliability", "tool_reliability", "share"),
        _Measure("reward", "reward", "score"),
        _Measure("model calls", "model_calls", "cost"),
        _Measure("tokens per task", "tokens", "cost"),
    ]


_SPENT = [
    _Measure("prompt tokens", "prompt_tokens", "cost"),
    _Measure("$ per 1,000", "cost", "cost", 1000.0),
    _Measure("seconds", "seconds", "cost"),
]


def values(metrics: Metrics, *others: Metrics) -> list[tuple[str, ...]]:
    """Return each metric's label and its value with interval, for each of some.

    What none of them has measured is left out.
    """
    shown = (metrics, *others)
    return [
        (m.label, *(_text(m, each) for each in shown))
        for m in (*_measures(metrics.k), *_SPENT)
        if any(m.of(each).n for each in shown)
    ]


def rows(before: Metrics, after: Metrics) -> list[Row]:
    """Return the comparison of two measurements, paired if the tasks are the same."""
    return _rows(_measures(min(before.k, after.k)), before, after)


def all_rows(before: Metrics, after: Metrics) -> list[Row]:
    """Return the comparison with everything that was spent."""
    spent = [m for m in _SPENT if m.of(before).n or m.of(after).n]
    return _rows([*_measures(min(before.k, after.k)), *spent], before, after)


def breakdown_rows(before: Metrics, after: Metrics) -> list[Row]:
    """Return only what is compared of further held-out sets."""
    k = min(before.k, after.k)
    shown = ("pass^1", f"pass^{k}", "tool reliability")
    return _rows([m for m in _measures(k) if m.label in shown], before, after)


def _rows(measures: list[_Measure], before: Metrics, after: Metrics) -> list[Row]:
    before, after = before.at_most(after.k), after.at_most(before.k)
    found = compare(before, after).differences if are_paired(before, after) else {}
    return [
        _row(m, before, after, _scaled(found.get(m.name, UNMEASURED), m.scale))
        for m in measures
    ]


def _row(
    measure: _Measure, before: Metrics, after: Metrics, difference: Estimate
) -> Row:
    old, new = measure.of(before), measure.of(after)
    sign = -1 if measure.kind == "cost" else 1
    if difference.n:
        clear = sign * ((difference.low > 0) - (difference.high < 0))
    else:
        clear = sign * ((new.low > old.high) - (new.high < old.low))
    return Row(
        measure.label,
        _text(measure, before),
        _text(measure, after),
        _gain(measure.kind, old.value, new.value) if old.n and new.n else "",
        clear,
        _interval(measure.kind, difference, old.value) if difference.n else "",
    )


def _text(measure: _Measure, metrics: Metrics) -> str:
    span = share_span if measure.kind == "share" else number_span
    return span(measure.of(metrics))


def _gain(kind: str, old: float, new: float) -> str:
    if kind == "share":
        return f"{100 * (new - old):+.0f} points"
    if kind == "score":
        return ("+" if new >= old else "") + number(new - old)
    return f"{100 * (new / old - 1):+.0f} %" if old else ""


def _interval(kind: str, difference: Estimate, old: float) -> str:
    """Return a difference's interval in the units of :func:`_gain`."""
    if kind == "score":
        return f"[{number(difference.low)}, {number(difference.high)}]"
    if kind == "cost" and not old:
        return ""
    unit = 100.0 if kind == "share" else 100.0 / old
    return f"[{unit * difference.low:+.0f}, {unit * difference.high:+.0f}]"


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(
        value=factor * estimate.value,
        low=factor * estimate.low,
        high=factor * estimate.high,
        n=estimate.n,
    )
