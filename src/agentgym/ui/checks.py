"""Show the results of checks: of this machine, and of a scenario before training."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from agentgym.ui.layout import grid

if TYPE_CHECKING:
    from agentgym.evaluate.check import Finding

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
