"""Create tables, indented views, and views that depend on the terminal's width."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from agentgym.evaluate.check import Finding


@dataclass(frozen=True)
class ByWidth:
    """A view that depends on the terminal's width; ``draw`` creates it for a width."""

    draw: Callable[[int], RenderableType]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        yield self.draw(options.max_width)


def grid(*lines: tuple[RenderableType, ...]) -> Table:
    """Return a table without header; a line is a label and one or more values."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def headed(gap: int) -> Table:
    """Return an empty table with a header, and ``gap`` spaces between columns."""
    return Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")


def indent(view: RenderableType) -> Padding:
    """Return ``view`` with an indent of two spaces."""
    return Padding(view, (0, 0, 0, 2), expand=False)


_SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int) -> str:
    """Draw values over time as a curve of at most ``width`` block characters."""
    if len(values) < 2 or width < 2:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((mean - low) * scale)] for mean in means)


def trained_words(tokens: str) -> str:
    """Describe the tokens that a model learns from, a value of ``train_tokens``."""
    return {
        "calls": "tool calls: the choice of a tool and its arguments, no other text",
        "calls+reasoning": "tool calls and reasoning; the text of answers is left out",
        "all": "all that the model writes: calls, reasoning and the text of answers",
    }.get(tokens, tokens)


STYLES = {
    **dict.fromkeys(("ok", "pass"), "green"),
    **dict.fromkeys(("missing", "warning", "warn"), "yellow"),
    **dict.fromkeys(("broken", "critical", "fail"), "bold red"),
    "info": "cyan",
    "skip": "dim",
}


def checks_view(checks: Iterable[tuple[str, str, str]]) -> RenderableType:
    """Return a view of checks of a machine, each with its name, state and detail."""
    table = grid()
    table.add_column(style="dim", overflow="fold")
    for name, state, detail in checks:
        table.add_row(name, Text(state, STYLES[state]), detail)
    return table


def tripwires_view(findings: "Sequence[Finding]") -> RenderableType:
    """Return a view of the checks that a scenario must pass before training."""
    return grid(
        *(
            (Text(f.status, STYLES[f.status]), Text(f.name, "bold"), Text(f.why))
            for f in findings
        )
    )
