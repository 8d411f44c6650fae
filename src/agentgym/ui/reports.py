"""Write reports of evaluations and comparisons as Markdown, and any as HTML."""

from collections.abc import Iterable, Sequence
from html import escape

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
    confusion_cells,
    family_lines,
    variant_rows,
    verdict,
)

_SECTION = "\n## "
_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #16181d; --faint: #565c68;
  --line: #d5d9e0; --c0: #0b57d0; --c1: #c2410c; --c2: #16683a; --c3: #8b2fc9;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --text: #e8eaee;
  --faint: #a8afbc; --line: #363b45; --c0: #8ab4f8; --c1: #ffab70; --c2: #81c995;
  --c3: #d7aefb; --bad: #f6aea9; } }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; background: var(--ground);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; overflow-wrap: normal; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
.right { text-align: right; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; } code { font-family: ui-monospace, monospace; }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .5rem; }
figcaption { font-weight: 600; font-size: .9rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 11px; }
.grid { stroke: var(--line); } .line { fill: none; stroke-width: 1.8; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); }
.line.c2 { stroke: var(--c2); } .line.c3 { stroke: var(--c3); }
.legend, footer { font-size: .8rem; color: var(--faint); } .key { margin-right: .8rem; }
.key i { display: inline-block; width: .8rem; height: .2rem; margin-right: .3rem;
  vertical-align: middle; }
i.c0 { background: var(--c0); } i.c1 { background: var(--c1); }
i.c2 { background: var(--c2); } i.c3 { background: var(--c3); }
.span { stroke-width: 1.5; } .span.before { stroke: var(--faint); opacity: .6; }
.span.after { stroke: var(--c0); opacity: .6; }
circle.before { fill: var(--ground); stroke: var(--faint); stroke-width: 1.5; }
circle.after { fill: var(--c0); } circle.worse { fill: var(--bad); }
.span.worse { stroke: var(--bad); }
"""


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
        total = sum(found.calls.values())
        calls = [(kind.value, n, f"{n / total:.1%}") for kind, n in found.calls.items()]
        lines = [
            (name, f"{n:,}", part) for name, n, part in [*calls, ("all", total, "")]
        ]
        parts += ["## Tool calls, each in one class\n"]
        parts += [table(["class", "calls", "share"], lines)]
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
