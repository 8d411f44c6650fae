"""Draw charts for reports, as SVG in HTML, without scripts or other files."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from agentgym.evaluate.intervals import Estimate

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
    """Draw a chart of success by family (kind) of tasks, with confidence intervals.

    A hollow circle is the success before training, a filled circle the success after.
    Returns a ``figure`` element in HTML; empty without families.
    """
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
