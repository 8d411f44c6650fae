"""Words and rows of tables: metrics before and after training, roles, model calls."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentgym.core.ledger import Ledger, RoleLedger
from agentgym.evaluate.advice import few_words
from agentgym.evaluate.compare import Change, Comparison, Effect, are_paired, compare
from agentgym.evaluate.intervals import UNMEASURED, Estimate, points
from agentgym.evaluate.metrics import (
    METRICS,
    SHARES,
    MetricName,
    Metrics,
    RoleMetric,
    RoleMetrics,
    role_metrics,
)
from agentgym.evaluate.numbers import digits, number, percent, plural
from agentgym.evaluate.ranker import judging_words
from agentgym.evaluate.shown import TO, Compared, MetricRow, Span

_VERDICTS = {
    "helped": "{} helped",
    "hurt": "{} hurt",
    "made no difference": "{} made no difference beyond chance",
}
_NAMED = 6  # changes to name


def share_span(estimate: Estimate) -> str:
    """Format a share with its confidence interval, as in ``"93 % [90, 95]"``."""
    if estimate.n == 0:
        return "not measured"
    low, high = (percent(end)[:-2] for end in (estimate.low, estimate.high))
    return f"{percent(estimate.value)} [{low}, {high}]"


def number_span(estimate: Estimate, scale: float = 1.0) -> str:
    """Format a number, multiplied by ``scale``, with its confidence interval."""
    if estimate.n == 0:
        return "not measured"
    ends = [scale * end for end in (estimate.value, estimate.low, estimate.high)]
    value, low, high = (f"{end:,.{digits(ends[0])}f}" for end in ends)
    return f"{value} [{low}, {high}]"


@dataclass(frozen=True)
class _Measure:
    """How a metric is shown: label, kind, and a factor (``scale``) for its value.

    For metrics of kind ``cost``, a smaller value is better. If ``usual`` is false, the
    metric is only shown in evaluations, and only if it was measured.
    """

    label: str
    name: MetricName
    kind: Literal["share", "score", "cost"]
    usual: bool = True
    scale: float = 1.0

    def text(self, metrics: Metrics) -> str:
        if self.kind == "share":
            return share_span(metrics[self.name])
        return number_span(metrics[self.name], self.scale)


_MEASURES = (
    _Measure("right tool", "right_tool", "share"),
    _Measure("right arguments", "right_arguments", "share"),
    _Measure("pass^1", "pass_1", "share"),
    _Measure("pass^1, dropped as failed", "pass_1_of_all", "share"),
    _Measure("pass^{k}", "pass_k", "share"),
    _Measure("pass@{k}", "pass_at_k", "share", usual=False),
    _Measure("tool reliability", "tool_reliability", "share"),
    _Measure("reward", "reward", "score"),
    _Measure("model calls", "model_calls", "cost"),
    _Measure("prompt tokens", "prompt_tokens", "cost"),
    _Measure("sampled tokens", "tokens", "cost"),
    _Measure("cost per task", "token_cost", "cost"),
    _Measure("$ per 1,000", "cost", "cost", usual=False, scale=1000.0),
    _Measure(
        "$ per 1,000 successes", "cost_per_success", "cost", usual=False, scale=1000.0
    ),
    _Measure("seconds", "seconds", "cost", usual=False),
)
USUAL = tuple(measure.name for measure in _MEASURES if measure.usual)
BRIEF: tuple[MetricName, ...] = (*SHARES, "pass_1_of_all")
"""Metrics to compare on additional held-out sets, such as the out-of-vocabulary one."""


_REASONS = 6
_PERCENT = " %"
_OF_ROLES: tuple[tuple[RoleMetric, bool], ...] = (
    ("right_tool", True),
    ("tool_reliability", True),
    ("model_calls", False),
    ("tokens", False),
    ("cut", True),
)
"""Metrics of a role that are shown, and whether each is a share."""


def values(
    metrics: Metrics, *others: Metrics, names: Collection[MetricName] = METRICS
) -> list[tuple[str, ...]]:
    """Return a row per metric in ``names``: its label, and each measurement's value.

    Values are texts with confidence intervals. Metrics without a value in any
    measurement are left out.
    """
    shown = (metrics, *others)
    return [
        (m.label.format(k=metrics.k), *(m.text(each) for each in shown))
        for m in _MEASURES
        if m.name in names and any(each[m.name].n for each in shown)
        if _tells(m, metrics.k, *shown)
    ]


def rows(
    before: Metrics,
    after: Metrics,
    names: Collection[MetricName] = USUAL,
    warm: Metrics | None = None,
) -> list[MetricRow]:
    """Compare two measurements, and return a row per metric in ``names``."""
    k = min(each.k for each in (before, after, warm) if each is not None)
    before, after = before.at_most(k), after.at_most(k)
    warm = None if warm is None else warm.at_most(k)
    is_paired = are_paired(before, after)
    found = compare(before, after, names).differences if is_paired else {}
    lines = [
        _row(m, before, after, found.get(m.name, UNMEASURED), k, warm)
        for m in _MEASURES
        if m.name in names and _tells(m, k, before, after, warm)
        if m.usual or before[m.name].n or after[m.name].n
    ]
    if warm is None:
        return lines
    parts = rows(before, warm, names), rows(warm, after, names)
    first, second = ({r.label: r.full_gain for r in part} for part in parts)
    return [
        replace(
            row, warm_gain=first.get(row.label, ""), own_gain=second.get(row.label, "")
        )
        for row in lines
    ]


def compared(
    before: Metrics,
    after: Metrics,
    names: Collection[MetricName] = USUAL,
    warm: Metrics | None = None,
) -> Compared:
    """Return the table that compares the metrics ``names`` of two measurements."""
    return Compared(over(after), rows(before, after, names, warm))


def over(metrics: Metrics) -> str:
    """Describe the size of a measurement: number of tasks and of rollouts."""
    dropped = f", {metrics.dropped} dropped" if metrics.dropped else ""
    return (
        f"{plural(metrics.tasks, 'task')}, {plural(metrics.rollouts, 'rollout')}"
        f"{dropped}; 95 % intervals in brackets"
    )


def difference_rows(found: Comparison) -> list[tuple[str, str]]:
    """Return a row per compared metric: its label, and its difference as a text."""
    return [
        (
            m.label.format(k=found.k),
            points(difference)
            if m.kind == "share"
            else number_span(difference, m.scale),
        )
        for m in _MEASURES
        if (difference := found.differences.get(m.name, UNMEASURED)).n
    ]


def family_rows(
    before: Metrics, after: Metrics, warm: Metrics | None = None
) -> list[MetricRow]:
    """Compare success by family (kind) of tasks, and return a row per family."""
    old, new = before.family_success(), after.family_success()
    between = {} if warm is None else warm.family_success()
    if len(new) < 2:
        return []
    rows = []
    for name in [name for name in new if name in old]:
        first, last = old[name], new[name]
        rows.append(
            MetricRow(
                name,
                share_span(first),
                share_span(last),
                _gain("share", first.value, last.value, UNMEASURED)[0],
                (last.low > first.high) - (last.high < first.low),
                warm=share_span(between[name]) if name in between else "",
                change=last.value - first.value,
            )
        )
    return rows


def _tells(measure: _Measure, k: int, *shown: Metrics | None) -> bool:
    """Return whether a metric needs its own row: its value can differ from pass^1.

    ``pass_1_of_all`` can differ only if rollouts were dropped; ``pass_k`` and
    ``pass_at_k`` only if there is more than one attempt per task (``k`` > 1). A price
    of 0, of a model on this machine, needs none either.
    """
    if measure.name in ("cost", "cost_per_success"):
        return any(each is not None and each[measure.name].value for each in shown)
    if measure.name == "pass_1_of_all":
        return any(each is not None and each.dropped for each in shown)
    return measure.name not in ("pass_k", "pass_at_k") or k > 1


def _row(
    measure: _Measure,
    before: Metrics,
    after: Metrics,
    difference: Estimate,
    k: int,
    warm: Metrics | None,
) -> MetricRow:
    old, new = before[measure.name], after[measure.name]
    clear = (new.low > old.high) - (new.high < old.low)
    if difference.n:
        clear = (difference.low > 0) - (difference.high < 0)
    gain, interval = _gain(measure.kind, old.value, new.value, difference)
    return MetricRow(
        measure.label.format(k=k),
        measure.text(before),
        measure.text(after),
        gain if old.n and new.n else "",
        -clear if measure.kind == "cost" else clear,
        interval if difference.n else "",
        "" if warm is None else measure.text(warm),
        new.value - old.value,
    )


def _gain(kind: str, old: float, new: float, difference: Estimate) -> tuple[str, str]:
    """Return the gain and its confidence interval as texts.

    The unit depends on the metric's ``kind``: points for a share, % for a cost, else a
    plain number. The interval is that of ``difference``, which is paired by task.
    """
    low, high = difference.low, difference.high
    if kind == "score":
        sign = "+" if new >= old else ""
        return f"{sign}{number(new - old)}", f"[{number(low)}, {number(high)}]"
    if kind == "cost" and not old:
        return "", ""
    unit, name = (100.0, "points") if kind == "share" else (100.0 / old, "%")
    gain = f"{unit * (new - old):+.0f} {name}"
    return gain, f"[{unit * low:+.0f}, {unit * high:+.0f}]"


def ledger_spans(ledger: Ledger) -> list[Span]:
    """Describe how many model calls were trained, masked or dropped, and why."""
    counts = f"{ledger.trained:,} trained, {ledger.masked.total():,} masked, "
    counts += f"{ledger.dropped.total():,} dropped"
    spans = [
        (f"{plural(ledger.calls, 'model call')}: ", "bold"),
        (counts + (f"; learned from: {ledger.tokens}" if ledger.tokens else ""), ""),
        ("" if ledger.adds_up else "  (does not add up!)", "bold red"),
    ]
    reasons = [
        f"{verb}, {reason}: {count:,}"
        for verb, found in (("masked", ledger.masked), ("dropped", ledger.dropped))
        for reason, count in found.most_common()
    ]
    more = len(reasons) - _REASONS
    if more > 0:
        reasons = [*reasons[:_REASONS], f"{plural(more, 'other reason')}"]
    if reasons:
        spans.append((f"\n  {'; '.join(reasons)}", "dim"))
    if ledger.judging is not None:
        spans.append((f"\n  {judging_words(ledger.judging)}", "dim"))
    return spans


def ledger_lines(ledger: Ledger) -> list[tuple[str, ...]]:
    """Return counts of model calls as texts: a row per role, and a row of sums."""
    if len(ledger.roles) < 2:
        return []
    parts = sorted(ledger.roles.items(), key=lambda item: -item[1].calls)
    return [_ledger_line(role, part) for role, part in (*parts, ("all", ledger))]


def metrics_lines(
    before: Metrics | None, after: Metrics | None
) -> list[tuple[str, ...]]:
    """Return a row of metrics for each role of a team, as texts ``before → after``."""
    measured = [found for found in (before, after) if found is not None]
    sides = [role_metrics(found, *measured) for found in measured]
    return [
        (role, *_changes([side[role] for side in sides]))
        for role in dict.fromkeys(role for side in sides for role in side)
    ]


def _ledger_line(role: str, part: RoleLedger) -> tuple[str, ...]:
    counts = (part.calls, part.trained, part.masked.total(), part.dropped.total())
    return role, *(f"{count:,}" for count in counts)


def _changes(sides: Sequence[RoleMetrics]) -> Iterator[str]:
    for name, is_share in _OF_ROLES:
        *before, after = (_value(found[name], is_share) for found in sides)
        if after.endswith(_PERCENT):
            before = [value.removesuffix(_PERCENT) for value in before]
        yield TO.join([*before, after])


def _value(estimate: Estimate, is_share: bool) -> str:
    if not estimate.n:
        return "-"
    return percent(estimate.value) if is_share else number(estimate.value)


def p_words(p_value: float) -> str:
    """Format a p-value as ``"p = 0.0312"``; a very small one as ``"p < 0.0001"``."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


def verdict_words(effect: Effect, *, has_warm_start: bool = False) -> str:
    """Return a sentence on whether training helped, with the p-value."""
    subject = "Warm start and training together" if has_warm_start else "Training"
    verdict = _VERDICTS[effect.verdict].format(subject)
    said = (
        f"{verdict}: pass^1 {percent(effect.before)} -> "
        f"{percent(effect.after)} ({p_words(effect.p_value)}, paired over "
        f"{plural(effect.tasks, 'task')})."
    )
    is_clear = effect.verdict != "made no difference"
    return said if is_clear else f"{said} {few_words(effect.tasks)}".rstrip()


def changes_words(effect: Effect) -> tuple[str, str]:
    """Return the sentences on better and on worse results; the first may be ""."""
    better = _named("Better beyond chance", effect.better)
    worse = _named("Worse beyond chance", effect.worse)
    return better, worse or "No metric got worse beyond chance."


def _named(title: str, changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    ordered = sorted(changes, key=lambda c: -abs(c.after - c.before))
    words = [change.words() for change in ordered[:_NAMED]]
    if more := len(ordered) - len(words):
        words.append(f"{more} more")
    return f"{title}: {'; '.join(words)}."
