"""Draw success before, during and after training as bars of block characters."""

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 4
_MOST_BARS = 14
_BAR = 4  # columns of a bar, its gap included
_SCALE = 7  # columns left of the bars
_EMPTY = ("", None, "")
_TITLE = "Success on tasks that are not trained on: held out, validation by step"


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
    for number, (label, *_) in enumerate(bars):
        labels = f"{labels:<{_SCALE + _BAR * number + 1}}{label}"
    return chart.append(labels, "dim")


def _thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Return at most ``most`` points: means of a few, each at the last one's step."""
    count = min(most, len(points))
    edges = [round(n * len(points) / count) for n in range(count + 1)] if count else []
    groups = [points[a:b] for a, b in pairwise(edges)]
    return [(g[-1][0], sum(share for _, share in g) / len(g)) for g in groups]
