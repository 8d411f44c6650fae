"""Before and after, row by row: shared by the terminal's table and the report."""

from collections.abc import Callable
from dataclasses import dataclass

from agentgym.core.estimates import Estimate
from agentgym.core.metrics import Metrics
from agentgym.ui.words import number, number_span, share_span


@dataclass(frozen=True)
class Row:
    """One metric before and after training.

    Attributes:
        label: What is measured.
        before: Value and interval; likewise ``after``.
        gain: The difference, in points for shares, in per cent for costs.
        clear: 1 if better and -1 if worse beyond both intervals, else 0.
    """

    label: str
    before: str
    after: str
    gain: str
    clear: int


@dataclass(frozen=True)
class _Measure:
    label: str
    of: Callable[[Metrics], Estimate]
    kind: str  # "share", "score" (higher is better) or "cost" (lower is better)


def _measures(k: int) -> list[_Measure]:
    """Return what is compared; pass^k only where it is another than pass^1."""
    power = _Measure(f"pass^{k}", lambda m: m.pass_k, "share")
    return [
        _Measure("right tool", lambda m: m.right_tool, "share"),
        _Measure("right arguments", lambda m: m.right_arguments, "share"),
        _Measure("pass^1", lambda m: m.pass_1, "share"),
        *([power] if k > 1 else []),
        _Measure("tool reliability", lambda m: m.tool_reliability, "share"),
        _Measure("reward", lambda m: m.reward, "score"),
        _Measure("model calls", lambda m: m.model_calls, "cost"),
        _Measure("tokens per task", lambda m: m.tokens, "cost"),
    ]


def values(metrics: Metrics) -> list[tuple[str, str]]:
    """Return each metric's label and its value with interval."""
    return [(m.label, _text(m, metrics)) for m in _measures(metrics.k)]


def rows(before: Metrics, after: Metrics) -> list[Row]:
    """Return the comparison of two measurements on the same tasks."""
    return [_row(m, before, after) for m in _measures(min(before.k, after.k))]


def breakdown_rows(before: Metrics, after: Metrics) -> list[Row]:
    """Return only what is compared of further held-out sets."""
    k = min(before.k, after.k)
    shown = ("pass^1", f"pass^{k}", "tool reliability")
    return [_row(m, before, after) for m in _measures(k) if m.label in shown]


def _row(measure: _Measure, before: Metrics, after: Metrics) -> Row:
    old, new = measure.of(before), measure.of(after)
    sign = -1 if measure.kind == "cost" else 1
    clear = sign * ((new.low > old.high) - (new.high < old.low))
    gain = _gain(measure.kind, old.value, new.value) if old.n and new.n else ""
    return Row(
        measure.label, _text(measure, before), _text(measure, after), gain, clear
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
