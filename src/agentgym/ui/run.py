"""Show a run and its result, from the words and tables that its folder keeps."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.evaluate.numbers import number, percent, plural
from agentgym.evaluate.shown import (
    CHANGES_NOTE,
    LEDGER_HEAD,
    METRICS_HEAD,
    NOT_BETTER,
    TO,
    WARM,
    Compared,
    MetricRow,
    ShownResult,
)
from agentgym.scenarios.packs import shown_name
from agentgym.train.run_folder import RunFolder
from agentgym.ui.layout import ByWidth, grid, headed, indent, trained_words

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 4
_MOST_BARS = 14
_BAR = 4  # columns of a bar, its gap included
_SCALE = 7  # columns left of the bars
_EMPTY = ("", None, "")
_TITLE = "Success on tasks that are not trained on: held out, validation by step"
_NARROW = 72
_TIGHT = 92
_MOST_ROLES = 12
_ROLE = 24
_ROLES_NARROW = 76
_FAMILIES = 8
_LABELS = len("tool reliability")
_SPANS = len("0.04 [-0.01, 0.09]")
_SHARES = {
    "right tool": "right_tool",
    "right arguments": "right_arguments",
    "pass^1": "pass_1",
    "tool reliability": "tool_reliability",
}


def run_view(
    run: RunFolder, status: str, result: ShownResult | None, machine: str = ""
) -> RenderableType:
    """Return a view of a run: settings, newest step, validations and result."""
    record, steps = run.record(), run.metrics()
    config: dict[str, Any] = record["config"]
    scenario = shown_name(str(config.get("scenario")))
    facts = grid(
        ("status", status),
        ("scenario", f"{scenario}, through {config.get('framework')}"),
        ("model", str(config.get("model"))),
    )
    if form := record.get("form"):
        facts.add_row("tool calls", f"{form} form")
    if tokens := config.get("train_tokens"):
        facts.add_row("learns from", trained_words(tokens))
    if steps:
        last = steps[-1]
        facts.add_row(
            "newest step",
            f"{last['step']}: {last['episodes']:,} of "
            f"{plural(last['budget'], 'rollout')}, reward {number(last['reward'])}, "
            f"success {percent(last['success_rate'])}, "
            f"tool reliability {percent(last['tool_reliability'])}",
        )
    if counted := [step for step in steps if step.get("sequences")]:
        mean = sum(step["sequences"] for step in counted) / len(counted)
        breaks = sum(step["breaks"] for step in counted)
        message = f"{mean:.2f} a rollout, {plural(breaks, 'prefix break')}"
        facts.add_row("sequences", message)
    if machine:
        facts.add_row("machine", machine)
    parts: list[RenderableType] = [Text(str(run.path), "bold cyan"), indent(facts)]
    measured = [line for line in steps if "validation" in line]
    if measured:
        parts += [Text(""), Text("On validation tasks", "bold"), _history(measured)]
    if result is not None:
        parts.append(result_view(result, run.path))
    elif status != "running":
        resume = f"agentgym train --resume {run.path}"
        parts += [Text(""), Text.assemble("Continue it with: ", (resume, "green"))]
    return Group(*parts)


def _history(steps: list[dict[str, Any]]) -> RenderableType:
    """Return a table of validation metrics, with one row per training step."""
    table = headed(3)
    for label in ("step", *_SHARES):
        table.add_column(label, justify="right")
    for step in steps:
        shares = (step["validation"][name]["value"] for name in _SHARES.values())
        table.add_row(str(step["step"]), *map(percent, shares))
    return indent(table)


def result_view(result: ShownResult, run: Path) -> RenderableType:
    """Return a view of a run's result: details first, the verdict and its use last."""
    parts: list[RenderableType] = [
        Text(""),
        Text("Before and after, on held-out tasks", "bold"),
        compared_view(result.main),
    ]
    if result.warm_start:
        parts.append(Text(result.warm_start, "dim"))
    if result.families:
        title = Text("Success by family of tasks, worst first", "bold")
        parts += [Text(""), title, families_view(result.families)]
    for name, found in result.further.items():
        title = Text(f"{name[:1].upper()}{name[1:]}", "bold")
        parts += [Text(""), title, compared_view(found)]
    roles = roles_view(result.role_calls, result.role_metrics)
    return Group(
        *parts,
        Text(""),
        Text.assemble(*result.ledger),
        *[Text(*span) for span in result.forgetting],
        *([*roles, Text("")] if roles else []),
        Text(""),
        verdict_view(result, run),
    )


def verdict_view(result: ShownResult, run: Path) -> RenderableType:
    """Return a view of a run's verdict and of the next steps."""
    shares = result.before, result.validations, result.after
    parts: list[RenderableType] = [
        ByWidth(lambda width: success_chart(*shares, width)),
        Text(""),
        *(Text(words, style) for words, style in result.verdict),
        Text(result.spent, "dim"),
        Text(result.saved),
    ]
    if result.next_steps:
        parts.append(Text(f"{NOT_BETTER} Next:", "bold yellow"))
        parts += [Text(f"  - {step}") for step in result.next_steps]
    else:
        lines = "\n".join(f"  {line}" for line in result.use.splitlines())
        parts += [Text("Use it:"), Text(lines, "green", overflow="fold")]
    return Group(*parts, Text(f"See each rollout: agentgym view {run}", "dim"))


def compared_view(found: Compared) -> RenderableType:
    """Return a table of compared metrics, below the size of the measurement."""
    return Group(Text(found.size, "dim"), comparison_table(found.rows))


def success_chart(
    before: float, validations: Sequence[tuple[int, float]], after: float, width: int
) -> Text:
    """Return a bar chart of success rates, 0..1."""
    most = max(1, min(_MOST_BARS, (width - _SCALE) // _BAR - 5))
    bars: list[tuple[str, float | None, str]] = [("before", before, "bright_black")]
    for step, share in _thinned(validations, most):
        bars.append((str(step), share, "cyan"))
    # An empty bar gives the words below the first and the last one room.
    bars = [bars[0], _EMPTY, *bars[1:], *[_EMPTY][: len(bars) - 1]]
    bars.append(("after", after, "green"))
    chart = Text(f"{_TITLE if len(_TITLE) <= width else 'Success'}\n", "bold")
    for row in reversed(range(_ROWS)):
        chart.append(f"{100 * (row + 1) // _ROWS:>{_SCALE - 2}} %", "dim")
        for _, height, style in bars:
            filled = 0.0 if height is None else height * _ROWS - row
            block = _BLOCKS[round(8 * min(1.0, max(0.0, filled)))]
            chart.append(f" {block * (_BAR - 1)}", style)
        chart.append("\n")
    labels = " " * _SCALE
    for place, (label, *_) in enumerate(bars):
        labels = f"{labels:<{_SCALE + _BAR * place + 1}}{label}"
    return chart.append(labels, "dim")


def _thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Return at most ``most`` points: means of a few, each at the last one's step."""
    count = min(most, len(points))
    edges = [round(n * len(points) / count) for n in range(count + 1)] if count else []
    groups = [points[a:b] for a, b in pairwise(edges)]
    return [(g[-1][0], sum(share for _, share in g) / len(g)) for g in groups]


def families_view(found: Sequence[MetricRow]) -> RenderableType:
    """Return a table of success by family (kind) of tasks."""
    most = sorted(found, key=lambda row: -abs(row.change))[:_FAMILIES]
    parts = [comparison_table([row for row in found if row in most])]
    if left_out := [row for row in found if row not in most]:
        changes = [round(100 * row.change) for row in left_out]
        more = f"{plural(len(left_out), 'more family', 'more families')}, changed by "
        more += f"{min(changes):+d} to {max(changes):+d} points: see report.md."
        if not any(changes):
            more = more.partition(",")[0] + " did not change."
        parts.append(Text(more, "dim"))
    return Group(*parts)


def comparison_table(
    compared: Sequence[MetricRow],
    names: tuple[str, str, str] = ("before", "after", "gain"),
) -> RenderableType:
    """Return a table of compared metrics; ``names`` are the titles of its columns."""
    between = [WARM] if any(row.warm for row in compared) else []

    def draw(width: int) -> RenderableType:
        tight = width < _TIGHT
        table = headed(1 if tight else 3)
        table.add_column("", no_wrap=True, min_width=_LABELS)
        for name in (names[0], *between, names[1]):
            table.add_column(name, min_width=0 if tight else _SPANS)
        table.add_column(names[2], justify="right", no_wrap=True)
        lines = []
        for row in compared:
            gain = row.gain if width < _NARROW else row.full_gain
            gain = gain.replace(" points", "") if tight else gain
            warm = [row.warm for _ in between]
            lines.append([row.label, row.before, *warm, row.after, gain])
        if sum(1 + max(map(len, cells)) for cells in zip(*lines, strict=True)) > width:
            for line in lines:  # each interval below its value
                line[1:-1] = [cell.replace(" [", "\n[") for cell in line[1:-1]]
        for row, (*cells, after, gain) in zip(compared, lines, strict=True):
            style = {1: "green", 0: "", -1: "red"}[row.clear]
            table.add_row(*cells, Text(after, "bold"), Text(gain, style))
        return table if width < _NARROW else indent(table)

    return ByWidth(draw)


def roles_view(
    calls: Sequence[Sequence[str]],
    metrics: Sequence[Sequence[str]],
    note: str = CHANGES_NOTE,
) -> list[RenderableType]:
    """Return tables of the model calls and of the metrics of a team's roles."""
    parts: list[RenderableType] = []
    if calls:
        *roles, whole = calls
        shown = [*roles[:_MOST_ROLES], whole]
        parts += [Text(""), Text("Where the calls of each role went", "bold")]
        parts.append(
            _roles_table(LEDGER_HEAD, shown, left_out=len(roles) - _MOST_ROLES)
        )
    if metrics:
        table = _roles_table(
            METRICS_HEAD, metrics[:_MOST_ROLES], left_out=len(metrics) - _MOST_ROLES
        )
        parts += [Text(""), Text("Each role", "bold"), Text(note, "dim"), table]
    return parts


def _roles_table(
    head: tuple[str, ...], lines: Sequence[Sequence[str]], *, left_out: int
) -> RenderableType:
    """Return a table; in a narrow terminal, ``before → after`` becomes ``after``."""

    def draw(width: int) -> RenderableType:
        is_narrow = width < _ROLES_NARROW
        table = headed(1)
        longest = _ROLE // 2 if is_narrow else _ROLE
        table.add_column(head[0], overflow="ellipsis", no_wrap=True, max_width=longest)
        for name in head[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for role, *cells in lines:
            kept = (cell.rpartition(TO)[2] if is_narrow else cell for cell in cells)
            table.add_row(role, *kept)
        if left_out > 0:
            table.add_row(f"{left_out} more", *[""] * (len(head) - 1))
        return indent(table)

    return ByWidth(draw)
