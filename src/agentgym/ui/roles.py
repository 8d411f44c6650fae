"""Show the calls and metrics of each role of a team."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from agentgym.core.ledger import Ledger, RoleLedger
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import number, percent
from agentgym.evaluate.roles import RoleMetric, RoleMetrics, role_metrics
from agentgym.ui.layout import ByWidth, headed, indent

LEDGER_HEAD = ("role", "model calls", "trained", "masked", "dropped")
METRICS_HEAD = ("role", "right tool", "reliable", "calls", "tokens", "cut")
METRICS_NOTE = (
    "Calls and tokens are per rollout of the team; reliable is the share of its tool "
    "calls, cut that of rollouts in which it came to its limit of turns."
)
CHANGES_NOTE = f"Held-out tasks, before → after. {METRICS_NOTE}"
_MOST = 12
_NARROW = 76
_ROLE = 24
_TO = " → "
_PERCENT = " %"
_SHOWN: tuple[tuple[RoleMetric, bool], ...] = (
    ("right_tool", True),
    ("tool_reliability", True),
    ("model_calls", False),
    ("tokens", False),
    ("cut", True),
)
"""Metrics of a role that are shown, and whether each is a share."""


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


def roles_view(
    ledger: Ledger, before: Metrics | None, after: Metrics | None
) -> list[RenderableType]:
    """Return tables of the model calls and the metrics of a team's roles."""
    parts: list[RenderableType] = []
    calls = ledger_lines(ledger)
    if calls:
        *roles, whole = calls
        shown = [*roles[:_MOST], whole]
        parts += [Text(""), Text("Where the calls of each role went", "bold")]
        parts.append(_table(LEDGER_HEAD, shown, left_out=len(roles) - _MOST))
    return parts + _metrics_view(metrics_lines(before, after), CHANGES_NOTE)


def measured_roles_view(found: Metrics) -> list[RenderableType]:
    """Return a table of the metrics of a team's roles in one measurement."""
    return _metrics_view(metrics_lines(None, found), METRICS_NOTE)


def _metrics_view(lines: list[tuple[str, ...]], note: str) -> list[RenderableType]:
    if not lines:
        return []
    table = _table(METRICS_HEAD, lines[:_MOST], left_out=len(lines) - _MOST)
    return [Text(""), Text("Each role", "bold"), Text(note, "dim"), table]


def _table(
    head: tuple[str, ...], lines: list[tuple[str, ...]], *, left_out: int
) -> RenderableType:
    """Return a table; in a narrow terminal, ``before → after`` becomes ``after``."""

    def draw(width: int) -> RenderableType:
        is_narrow = width < _NARROW
        table = headed(1)
        longest = _ROLE // 2 if is_narrow else _ROLE
        table.add_column(head[0], overflow="ellipsis", no_wrap=True, max_width=longest)
        for name in head[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for role, *cells in lines:
            kept = (cell.rpartition(_TO)[2] if is_narrow else cell for cell in cells)
            table.add_row(role, *kept)
        if left_out > 0:
            table.add_row(f"{left_out} more", *[""] * (len(head) - 1))
        return indent(table)

    return ByWidth(draw)


def _ledger_line(role: str, part: RoleLedger) -> tuple[str, ...]:
    counts = (part.calls, part.trained, part.masked.total(), part.dropped.total())
    return role, *(f"{count:,}" for count in counts)


def _changes(sides: Sequence[RoleMetrics]) -> Iterator[str]:
    for name, is_share in _SHOWN:
        *before, after = (_value(found[name], is_share) for found in sides)
        if after.endswith(_PERCENT):
            before = [value.removesuffix(_PERCENT) for value in before]
        yield _TO.join([*before, after])


def _value(estimate: Estimate, is_share: bool) -> str:
    if not estimate.n:
        return "-"
    return percent(estimate.value) if is_share else number(estimate.value)
