"""Show an evaluation, or a comparison of two evaluations, in the terminal."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentgym.evaluate.call_classes import (
    INVENTED,
    NO_CALL,
    NOTHING,
    OWN,
    UNREADABLE,
    ConfusionMatrix,
)
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.metrics import METRICS, Metrics
from agentgym.evaluate.numbers import plural
from agentgym.evaluate.result import Evaluation
from agentgym.evaluate.rows import (
    metrics_lines,
    over,
    p_words,
    rows,
    share_span,
    values,
)
from agentgym.evaluate.shown import METRICS_NOTE
from agentgym.ui.layout import ByWidth, grid, headed, indent
from agentgym.ui.run import comparison_table, roles_view

# Maximum number of rows in a table of task families (kinds of tasks) or of tools.
_MOST_ROWS = 24


def evaluation_view(found: Evaluation) -> RenderableType:
    """Return a view of an evaluation: metrics, baselines, calls, confusion matrix."""
    title = f"{found.subject} on {found.scenario}, {found.split} split"
    parts: list[RenderableType] = [
        Text(title, "bold"),
        Text(over(found.metrics), "dim"),
        *_notes(found),
        indent(_metrics_table(found)),
        *roles_view((), metrics_lines(None, found.metrics), METRICS_NOTE),
    ]
    if families := family_lines(found.metrics):
        parts += [Text(""), Text("Successes by kind of task (pass^1)", "bold")]
        parts += [indent(grid(*families))]
    if found.calls:
        parts += [Text(""), Text("Tool calls, each in one class", "bold")]
        parts += [indent(_calls_table(found))]
    if found.confusion is not None:
        parts += [Text(""), Text("Tool needed (rows), tool called (columns)", "bold")]
        parts += [_confusion_table(found.confusion)]
    return Group(*parts)


def comparison_of_two(
    before: Evaluation, after: Evaluation, found: Comparison
) -> RenderableType:
    """Return a view of two evaluations of the same tasks, and of their differences."""
    where = f"{before.scenario}, {before.split} split, seed {before.seed}"
    size = (
        f"{plural(found.tasks, 'task')} on both sides; 95 % intervals in brackets, "
        "those of differences paired by task"
    )
    names = (f"A: {before.subject}", f"B: {after.subject}", "B - A")
    table = comparison_table(rows(before.metrics, after.metrics, METRICS), names)
    notes = _notes(before, after)
    return Group(
        Text(where, "bold"), Text(size, "dim"), *notes, table, Text(verdict(found))
    )


def _notes(*every: Evaluation) -> list[Text]:
    return [Text(note, "yellow") for found in every for note in found.notes]


def verdict(found: Comparison) -> str:
    """Return a sentence on whether A or B is better in pass^1, with the p-value."""
    what = "no difference shown"
    if found.p_value < 0.05:
        better = "B" if found.differences["pass_1"].value > 0 else "A"
        what = f"{better} is better"
    return f"pass^1: {what} ({p_words(found.p_value)}, paired sign-flip test)."


def _metrics_table(found: Evaluation) -> Table:
    table = headed(3)
    table.add_column("", style="dim", no_wrap=True)
    table.add_column(found.subject if found.baselines else "")
    for name in found.baselines:
        table.add_column(name, style="dim")
    for label, value, *others in values(found.metrics, *found.baselines.values()):
        # The baselines' intervals are in the JSON report.
        bare = (other.partition(" [")[0] for other in others)
        shown = ("-" if other == "not measured" else other for other in bare)
        table.add_row(label, Text(value, "bold"), *shown)
    for row in variant_rows(found):
        table.add_row(*row)
    return table


def variant_rows(found: Evaluation) -> list[tuple[str, str]]:
    """Return a row for the same tasks under each other condition: success, calls."""
    return [
        (
            name,
            f"{share_span(each.pass_1)}; {share_span(each.tool_reliability)} of calls",
        )
        for name, each in found.variants.items()
    ]


def calls_lines(found: Evaluation) -> list[tuple[str, str, str]]:
    """Return a row per class of tool calls: name, number and share of the calls."""
    total = sum(found.calls.values())
    lines = [
        (kind.value.replace("_", " "), f"{count:,}", f"{100 * count / total:.1f} %")
        for kind, count in found.calls.items()
    ]
    return [*lines, ("all", f"{total:,}", "")]


def _calls_table(found: Evaluation) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right")
    table.add_column(justify="right")
    for line in calls_lines(found):
        table.add_row(*line)
    return table


def family_lines(metrics: Metrics) -> list[tuple[str, str, str]]:
    """Return a row per family (kind) of tasks: name, pass^1, and number of tasks."""
    shares = metrics.family_success()
    tasks = [task for task in metrics.by_task if task.attempts]
    if not 1 < len(shares) <= min(_MOST_ROWS, len(tasks) // 3):
        return []
    counts = Counter(task.family for task in tasks)
    return [
        (family, share_span(share), plural(counts[family], "task"))
        for family, share in shares.items()
    ]


def confusion_cells(matrix: ConfusionMatrix) -> tuple[list[str], list[str], str]:
    """Choose the rows and columns of a confusion matrix that are shown.

    A row is the tool that was needed, a column the tool that was called. Empty rows and
    columns are left out. If there are very many rows, e.g. because each task has its
    own tools, only the rows with the most wrong calls are kept, and a sentence about
    the others is returned, too.
    """
    rows = [row for row in (*matrix.tools, NOTHING) if matrix.counts.get(row)]
    message = ""
    if len(rows) > _MOST_ROWS:
        wrong = {row: _wrong(matrix, row) for row in rows}
        worst = sorted(filter(wrong.get, rows), key=lambda row: -wrong[row])
        shown = set(worst[:_MOST_ROWS])
        left = sum(n for row, n in wrong.items() if row not in shown)
        message = (
            f"Left out: {len(rows) - len(shown)} of {len(rows)} tools, with "
            f"{plural(left, 'wrong call')} together."
        )
        rows = [row for row in rows if row in shown]
    used = {column for row in rows for column in matrix.counts[row]}
    every = (*matrix.tools, NO_CALL, OWN, INVENTED, UNREADABLE)
    return rows, [column for column in every if column in used], message


def _wrong(matrix: ConfusionMatrix, row: str) -> int:
    return sum(n for column, n in matrix.counts[row].items() if column != row)


def _confusion_table(matrix: ConfusionMatrix) -> RenderableType:
    needed, called, left_out = confusion_cells(matrix)

    def draw(width: int) -> RenderableType:
        if sum(len(column) + 2 for column in called) + 16 > width:
            return indent(grid(*(_confusion_line(matrix, row) for row in needed)))
        table = headed(2)
        table.add_column("", style="dim", no_wrap=True)
        for column in called:
            table.add_column(column, justify="right", no_wrap=True)
        for row in needed:
            counts = {column: matrix.counts[row].get(column, 0) for column in called}
            cells = (
                Text(f"{count:,}" if count else "·", "bold" if column == row else "")
                for column, count in counts.items()
            )
            table.add_row(row, *cells)
        return indent(table)

    drawn = ByWidth(draw)
    return Group(drawn, indent(Text(left_out, "dim"))) if left_out else drawn


def _confusion_line(matrix: ConfusionMatrix, row: str) -> tuple[str, str]:
    """Return a row for a narrow terminal: the needed tool, counts of called tools."""
    ordered = sorted(matrix.counts[row].items(), key=lambda cell: -cell[1])
    return row, ", ".join(f"{name} {count:,}" for name, count in ordered)
