"""Create tables, indented views, and views that depend on the terminal's width."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table


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
