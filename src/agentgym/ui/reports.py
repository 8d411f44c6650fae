"""Write reports of evaluations and comparisons as Markdown, and any as HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

from agentgym.evaluate.call_classes import ConfusionMatrix
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.metrics import METRICS
from agentgym.evaluate.numbers import plural
from agentgym.evaluate.result import Evaluation
from agentgym.evaluate.rows import metrics_lines, rows, values
from agentgym.evaluate.shown import METRICS_HEAD, METRICS_NOTE, WARM, MetricRow
from agentgym.train.result import TrainingResult, effect_lines
from agentgym.ui.evaluation import (
    calls_lines,
    confusion_cells,
    family_lines,
    variant_rows,
    verdict,
)

_SECTION = "\n## "
_STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")


def html_page(markdown: str, pictures: Sequence[str] = ()) -> str:
    """Convert a Markdown report to an HTML page, which cannot run scripts."""
    head, mark, rest = markdown.partition(_SECTION)
    title = markdown.partition("\n")[0].lstrip("# ")
    shown = "".join(pictures)
    charts = f'<div class="charts">{shown}</div>' if shown else ""
    body = [rendered(head), charts, rendered(f"{mark}{rest}".lstrip())]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n{''.join(body)}</main>\n</body>\n</html>\n"
    )


def rendered(markdown: str) -> str:
    """Convert Markdown to HTML, with tables that scroll if they are too wide."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    made = str(parser.render(markdown))
    made = made.replace(' style="text-align:right"', ' class="right"')
    wide = '<div class="wide" tabindex="0" role="region" aria-label="table">'
    return made.replace("<table>", f"{wide}<table>").replace(
        "</table>", "</table></div>"
    )


def effect_parts(result: TrainingResult) -> list[str]:
    """Return paragraphs on whether training helped, and on which metrics changed."""
    return [
        f"**{words}**\n" if style.startswith("bold") else f"{words}\n"
        for words, style in effect_lines(result)
    ]


def render_evaluation(found: Evaluation) -> str:
    """Return the Markdown report of an evaluation."""
    blank = [""] * len(found.baselines)
    shown = values(found.metrics, *found.baselines.values())
    shown += [(*row, *blank) for row in variant_rows(found)]
    parts = [
        f"# {found.subject} on {found.scenario}\n",
        f"{_size(found)} 95 % intervals over tasks in brackets.\n",
        *(f"{note}\n" for note in found.notes),
        table(["", found.subject, *found.baselines], shown),
    ]
    if roles := metrics_lines(None, found.metrics):
        parts += ["## Each role\n", f"{METRICS_NOTE}\n", table(METRICS_HEAD, roles)]
    if families := family_lines(found.metrics):
        parts += ["## Successes by kind of task (pass^1)\n"]
        parts += [table(["kind", "pass^1", ""], families)]
    if found.calls:
        parts += ["## Tool calls, each in one class\n"]
        parts += [table(["class", "calls", "share"], calls_lines(found))]
    if found.confusion is not None:
        heading = "## Tool needed (rows), tool called (columns)\n"
        parts += confusion_parts(found.confusion, heading)
    return "\n".join([*parts, _made(found)])


def confusion_parts(matrix: ConfusionMatrix, heading: str) -> list[str]:
    """Return a heading, and a confusion matrix as a Markdown table."""
    counts = matrix.counts
    needed, called, left_out = confusion_cells(matrix)
    cells = [(row, *(str(counts[row].get(c, 0)) for c in called)) for row in needed]
    parts = [heading, table(["needed", *called], cells)]
    return [*parts, f"{left_out}\n"] if left_out else parts


def render_comparison(before: Evaluation, after: Evaluation, found: Comparison) -> str:
    """Return the Markdown report of a comparison of two evaluations."""
    compared = rows(before.metrics, after.metrics, METRICS)
    names = (f"A: {before.subject}", f"B: {after.subject}", "B - A")
    size = (
        f"{plural(found.tasks, 'task')} on both sides; {_size(before)} 95 % intervals "
        "over tasks in brackets, those of differences paired by task.\n"
    )
    title = f"# {before.subject} and {after.subject} on {before.scenario}\n"
    said = f"{verdict(found)}\n"
    compared_table = gains_table(compared, names, left=1)
    notes = [f"{note}\n" for note in (*before.notes, *after.notes)]
    made = [_made(before), _made(after)]
    return "\n".join([title, size, *notes, compared_table, said, *made])


def _size(found: Evaluation) -> str:
    metrics = found.metrics
    dropped = f", {metrics.dropped} dropped" if metrics.dropped else ""
    return (
        f"{plural(metrics.tasks, 'task')} of the {found.split} split, seed "
        f"{found.seed}, {plural(metrics.rollouts, 'rollout')}{dropped}."
    )


def _made(found: Evaluation) -> str:
    where = f", answered by {found.endpoint}" if found.endpoint else ""
    return (
        f"{found.subject}: measured {found.created} with agentgym {found.agentgym}, "
        f"through {found.framework}{where}.\n"
    )


def gains_table(
    compared: Iterable[MetricRow],
    names: Sequence[str] = ("before", "after", "gain"),
    left: int = 3,
) -> str:
    """Return compared metrics as a Markdown table."""
    compared = list(compared)
    head = ["", *names]
    cells = [[r.label, r.before, r.after, r.full_gain] for r in compared]
    if any(row.warm for row in compared):
        head.insert(2, WARM)
        head += [f"by {WARM}", "by training"]
        for row, line in zip(compared, cells, strict=True):
            line.insert(2, row.warm)
            line += [row.warm_gain, row.own_gain]
    return table(head, cells, left)


def table(head: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; columns after the first ``left`` are right-aligned."""
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))
