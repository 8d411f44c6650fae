"""Write each report as one self-contained HTML file."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt

from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import Metrics
from agentgym.train.result import TrainingResult
from agentgym.ui.reports.pictures import Line, family_chart, line_chart

_CHARTS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("Success and tool reliability", ("success_rate", "tool_reliability"), True),
    ("Right tool and arguments", ("right_tool", "right_arguments"), True),
    ("Reward", ("reward",), False),
    ("Sampled tokens of a step", ("sampled_tokens",), False),
    ("KL to the policy that sampled (nats)", ("kl",), False),
    ("Entropy (nats)", ("entropy",), False),
)
_VALIDATED = ("pass_1", "right_arguments", "tool_reliability")
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
    """Convert a Markdown report to an HTML page, which cannot run scripts.

    HTML in the report is escaped. ``pictures`` are HTML; they are inserted before the
    first section.
    """
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


def run_pictures(
    result: TrainingResult | None, steps: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the charts of a run as HTML: curves, and success by family of tasks."""
    numbers = [int(step["step"]) for step in steps]
    pictures = [
        line_chart(title, numbers, _lines(steps, names), is_share=is_share)
        for title, names, is_share in _CHARTS
        if steps
    ]
    measured = [step for step in steps if step.get("validation")]
    if measured:
        lines = [
            Line(
                name.replace("_", " ").replace("pass 1", "success"),
                [step["validation"][name]["value"] for step in measured],
            )
            for name in _VALIDATED
        ]
        places = [int(step["step"]) for step in measured]
        pictures.append(line_chart("Validation tasks", places, lines, is_share=True))
    if result is not None:
        title = "Success by family of tasks, with 95 % intervals"
        pictures.append(family_chart(title, families(result.baseline, result.metrics)))
    return [picture for picture in pictures if picture]


def families(before: Metrics, after: Metrics) -> list[tuple[str, Estimate, Estimate]]:
    """Return each family's success before and after training, largest loss first."""
    old, new = before.family_success(), after.family_success()
    both = [(name, old[name], new[name]) for name in new if name in old]
    return sorted(both, key=lambda row: (row[2].value - row[1].value, row[0]))


def _lines(steps: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Line]:
    return [
        Line(name.replace("_", " "), [step.get(name) for step in steps])
        for name in names
    ]


def rendered(markdown: str) -> str:
    """Convert Markdown to HTML, with tables that scroll if they are too wide."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    made = str(parser.render(markdown))
    made = made.replace(' style="text-align:right"', ' class="right"')
    wide = '<div class="wide" tabindex="0" role="region" aria-label="table">'
    return made.replace("<table>", f"{wide}<table>").replace(
        "</table>", "</table></div>"
    )
