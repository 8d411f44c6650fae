"""What the terminal shows of an evaluation, and of a comparison of two."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentgym.evaluate.calls import INVENTED, NO_CALL, NOTHING, ConfusionMatrix
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.result import Evaluation
from agentgym.ui.comparison import all_rows, values
from agentgym.ui.tables import comparison_table, indent, over
from agentgym.ui.words import plural

_NOT_MEASURED = "not measured"


def evaluation_view(found: Evaluation, width: int) -> RenderableType:
    """Show the metrics beside the baselines, the calls by class, and the confusion.

    Args:
        found: What was measured.
        width: Columns of the terminal.
    """
    title = f"{found.subject} on {found.scenario}, {found.split} split"
    parts: list[RenderableType] = [
        Text(title, "bold"),
        Text(over(found.metrics), "dim"),
        indent(_metrics_table(found)),
    ]
    if found.calls:
        parts += [Text(""), Text("Tool calls, each in one class", "bold")]
        parts += [indent(_calls_table(found))]
    if found.confusion is not None:
        parts += [Text(""), Text("Tool needed (rows), tool called (columns)", "bold")]
        parts += [indent(_confusion_table(found.confusion, width))]
    return Group(*parts)


def comparison_of_two(
    before: Evaluation, after: Evaluation, found: Comparison, width: int
) -> RenderableType:
    """Show two evaluations of the same tasks, their differences and the test."""
    rows = all_rows(before.metrics, after.metrics)
    names = (f"A: {before.subject}", f"B: {after.subject}", "B - A")
    where = f"{before.scenario}, {before.split} split, seed {before.seed}"
    return Group(
        Text(where, "bold"),
        Text(
            f"{plural(found.tasks, 'task')} on both sides; 95 % intervals in brackets, "
            "those of differences paired by task",
            "dim",
        ),
        comparison_table(rows, width, names),
        Text(verdict(found)),
    )


def verdict(found: Comparison) -> str:
    """Say in a sentence what the test of pass^1 gave."""
    p = "p < 0.0001" if found.p_value < 0.0001 else f"p = {found.p_value:.4f}"
    if found.p_value >= 0.05:
        return f"pass^1: no difference shown ({p}, paired sign-flip test)."
    better = "B" if found.differences["pass_1"].value > 0 else "A"
    return f"pass^1: {better} is better ({p}, paired sign-flip test)."


def _metrics_table(found: Evaluation) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", style="dim", no_wrap=True)
    table.add_column(found.subject if found.baselines else "")
    for name in found.baselines:
        table.add_column(name, style="dim")
    for label, value, *others in values(found.metrics, *found.baselines.values()):
        shown = ["-" if other == _NOT_MEASURED else _bare(other) for other in others]
        table.add_row(label, Text(value, "bold"), *shown)
    return table


def _bare(span: str) -> str:
    """Return a value without its interval, which the JSON report has."""
    return span.partition(" [")[0]


def _calls_table(found: Evaluation) -> Table:
    total = sum(found.calls.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right")
    table.add_column(justify="right")
    for kind, count in found.calls.items():
        name = kind.value.replace("_", " ")
        table.add_row(name, f"{count:,}", f"{100 * count / total:.1f} %")
    table.add_row("all", f"{total:,}", "")
    return table


def confusion_columns(matrix: ConfusionMatrix) -> list[str]:
    """Return the columns that hold anything, in the order of the tools."""
    used = {column for row in matrix.counts.values() for column in row}
    return [c for c in (*matrix.tools, NO_CALL, INVENTED) if c in used]


def confusion_rows(matrix: ConfusionMatrix) -> list[str]:
    """Return the rows that hold anything, in the order of the tools."""
    return [row for row in (*matrix.tools, NOTHING) if matrix.counts.get(row)]


def _confusion_table(matrix: ConfusionMatrix, width: int) -> RenderableType:
    columns, rows = confusion_columns(matrix), confusion_rows(matrix)
    if sum(len(c) + 2 for c in columns) + 16 > width:
        return _confusion_list(matrix)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", style="dim", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        cells = [matrix.counts[row].get(column, 0) for column in columns]
        table.add_row(
            row,
            *(
                Text(f"{n:,}" if n else "·", "bold" if column == row else "")
                for column, n in zip(columns, cells, strict=True)
            ),
        )
    return table


def _confusion_list(matrix: ConfusionMatrix) -> RenderableType:
    """Show the matrix row by row, where its columns do not fit side by side."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for row in confusion_rows(matrix):
        ordered = sorted(matrix.counts[row].items(), key=lambda cell: -cell[1])
        table.add_row(row, ", ".join(f"{name} {count:,}" for name, count in ordered))
    return table
