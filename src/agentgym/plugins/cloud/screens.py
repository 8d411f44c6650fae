"""Show providers, prices and rented machines in the terminal."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.plugins.cloud.base import Offer, in_cents
from agentgym.plugins.cloud.quote import Quote
from agentgym.plugins.cloud.reap import Found
from agentgym.ui.layout import grid, headed, indent

_NONE = Text("-", "dim")


class ProviderRow(NamedTuple):
    """A provider of machines."""

    name: str
    key: str
    problem: str
    costs: bool


def providers_view(rows: Sequence[ProviderRow]) -> RenderableType:
    """Return a table of machine providers, with the setup that each needs."""
    table = grid()
    table.add_column(style="dim", overflow="fold")
    for row in rows:
        lacks = "no key" if row.key else "not installed"
        state = Text(lacks, "yellow") if row.problem else Text("ready", "green")
        needs = "this machine; costs nothing"
        if row.costs:
            needs = row.problem or (f"{row.key} is set" if row.key else "installed")
        table.add_row(row.name, state, needs)
    return table


def offers_view(offers: Sequence[Offer]) -> RenderableType:
    """Return a table of machines that can be rented, with prices."""
    if not offers:
        return Text("No provider offers a machine that fits.")
    table = headed(2)
    table.add_column("$ an hour", justify="right", no_wrap=True)
    table.add_column("GPU", overflow="fold")
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("of", no_wrap=True)
    table.add_column("where", overflow="fold")
    for offer in offers:
        style = "" if offer.is_available else "dim"
        where = offer.region or "any" if offer.is_available else "taken"
        table.add_row(
            in_cents(offer.hourly),
            offer.gpu,
            f"{offer.gpu_memory_gb:.0f} GB",
            offer.provider,
            where,
            style=style,
        )
    return table


def quote_view(quotes: Sequence[Quote]) -> RenderableType:
    """Return a view of a run's expected cost on the first machine of ``quotes``."""
    first, others = quotes[0], quotes[1:4]
    parts: list[RenderableType] = [Text("Expected cost", "bold")]
    parts += [indent(Text(words)) for words in first.words()]
    if others:
        lines = []
        for quote in others:
            offer = quote.offer
            brief = f"{offer.price}, about {quote.hours:.1f} hours, ${quote.total:.2f}"
            where = f" in {offer.region}" if offer.region else ""
            lines.append((f"{offer.gpu}{where}", brief))
        parts += [indent(Text("If that is taken:")), indent(indent(grid(*lines)))]
    return Group(*parts)


def machines_view(found: Sequence[Found]) -> RenderableType:
    """Return a table of rented machines, with cost and run of each."""
    table = headed(2)
    for name in ("machine", "of", "$ an hour", "so far", "run"):
        table.add_column(name, overflow="fold")
    for each in found:
        run = "not of this folder" if each.run is None else each.run.path.name
        table.add_row(
            each.machine.name,
            each.machine.provider,
            f"{each.machine.hourly:.2f}" if each.machine.hourly else _NONE,
            _NONE if each.record is None else f"${each.record.spent:.2f}",
            f"{run} (going on)" if each.is_used else run,
        )
    return table
