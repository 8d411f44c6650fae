"""Write each report as one self-contained HTML file."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import Metrics
from agentgym.train.result import TrainingResult

_WIDTH, _HEIGHT = 520, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_ROW = 22
_NAMES = 190
_COLOURS = 4
_MEAN = 10


class Line(NamedTuple):
    """A line in a chart: its name, and a value per step (None: no value)."""

    name: str
    values: Sequence[float | None]


def line_chart(
    title: str, steps: Sequence[int], lines: Sequence[Line], *, is_share: bool
) -> str:
    """Draw a chart of values by training step; a point is the mean of up to ten steps.

    With ``is_share`` the axis is 0 to 100 %. Returns a ``figure`` element in HTML;
    empty if no line has a value.
    """
    smooth = [Line(line.name, _smooth(line.values)) for line in lines]
    known = [v for line in smooth for v in line.values if v is not None]
    if not known:
        return ""
    low, high = (0.0, 1.0) if is_share else _range(min(known), max(known))
    first, last = steps[0], max(steps[-1], steps[0] + 1)

    def x(step: float) -> float:
        share = (step - first) / (last - first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = (value - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for place in range(5):
        value = low + place * (high - low) / 4
        text = f"{100 * value:.0f} %" if is_share else _number(value)
        parts.append(_rule(y(value), text))
    for step in {first, (first + steps[-1]) // 2, steps[-1]}:
        parts.append(_text(x(step), _HEIGHT - 8, str(step), "middle"))
    for number, line in enumerate(smooth):
        points = [
            f"{x(step):.1f},{y(value):.1f}"
            for step, value in zip(steps, line.values, strict=True)
            if value is not None
        ]
        shape = f'<polyline class="line c{number % _COLOURS}"'
        parts.append(f'{shape} points="{" ".join(points)}"/>')
    return _figure(title, parts, _HEIGHT, _described(title, smooth), _legend(smooth))


def family_chart(title: str, families: Sequence[tuple[str, Estimate, Estimate]]) -> str:
    """Draw a chart of success by family (kind) of tasks, with confidence intervals."""
    if not families:
        return ""
    height = _ROW * len(families) + _TOP + _BOTTOM

    def x(share: float) -> float:
        return _NAMES + share * (_WIDTH - _NAMES - _RIGHT - 12)

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        end = height - _BOTTOM
        parts.append(
            f'<line class="grid" x1="{x(share):.1f}" x2="{x(share):.1f}" y1="{_TOP}"'
            f' y2="{end}"/>'
        )
        parts.append(_text(x(share), height - 8, f"{100 * share:.0f} %", "middle"))
    for row, (name, before, after) in enumerate(families):
        middle = _TOP + _ROW * (row + 0.5)
        is_worse = after.value < before.value
        parts.append(_text(_NAMES - 8, middle + 4, name[:28], "end"))
        for found, kind, shift in ((before, "before", -3), (after, "after", 3)):
            kind += " worse" if is_worse and kind == "after" else ""
            at, y = x(found.value), middle + shift
            parts.append(
                f'<line class="span {kind}" x1="{x(found.low):.1f}"'
                f' x2="{x(found.high):.1f}" y1="{y}" y2="{y}"/>'
                f'<circle class="{kind}" cx="{at:.1f}" cy="{y}" r="4"/>'
            )
    said = "; ".join(
        f"{name}: {100 * before.value:.0f} % before, {100 * after.value:.0f} % after"
        for name, before, after in families
    )
    legend = '<span class="key">○ before</span> <span class="key">● after</span>'
    return _figure(title, parts, height, f"{title}. {said}", legend)


def _smooth(values: Sequence[float | None]) -> list[float | None]:
    """Replace each value by the mean of it and up to nine values before it."""
    found: list[float | None] = []
    for end in range(1, len(values) + 1):
        near = values[max(0, end - _MEAN) : end]
        known = [v for v in near if v is not None and math.isfinite(v)]
        found.append(sum(known) / len(known) if known else None)
    return found


def _range(low: float, high: float) -> tuple[float, float]:
    margin = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _rule(y: float, text: str) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}"'
    return f'{line} y1="{y:.1f}" y2="{y:.1f}"/>' + _text(_LEFT - 6, y + 4, text, "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}>{escape(text)}</text>"


def _described(title: str, lines: Sequence[Line]) -> str:
    ends = []
    for line in lines:
        known = [value for value in line.values if value is not None]
        if known:
            ends.append(f"{line.name} from {known[0]:.3g} to {known[-1]:.3g}")
    return f"{title}: {', '.join(ends)}"


def _legend(lines: Sequence[Line]) -> str:
    return " ".join(
        f'<span class="key"><i class="c{number % _COLOURS}"></i>'
        f"{escape(line.name)}</span>"
        for number, line in enumerate(lines)
    )


def _figure(
    title: str, parts: Sequence[str], height: float, said: str, legend: str
) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(said)}">{"".join(parts)}</svg>'
        f'<div class="legend">{legend}</div></figure>\n'
    )


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
