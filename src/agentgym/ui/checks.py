"""Show the results of checks of a machine or a scenario."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from agentgym.ui.layout import grid

if TYPE_CHECKING:
    from agentgym.doctor.machine import Check
    from agentgym.evaluate.check import Finding

STYLES = {
    **dict.fromkeys(("ok", "pass"), "green"),
    **dict.fromkeys(("missing", "warning", "warn"), "yellow"),
    **dict.fromkeys(("broken", "critical", "fail"), "bold red"),
    "info": "cyan",
    "skip": "dim",
}


def checks_view(checks: "Sequence[Check]") -> RenderableType:
    """Return a view of the checks of a machine."""
    table = grid()
    table.add_column(style="dim", overflow="fold")
    for check in checks:
        table.add_row(check.name, _styled(check.state), check.detail)
    return table


def tripwires_view(findings: "Sequence[Finding]") -> RenderableType:
    """Return a view of the checks that a scenario must pass before training."""
    return grid(
        *((_styled(f.status), Text(f.name, "bold"), Text(f.why)) for f in findings)
    )


def _styled(word: str) -> Text:
    return Text(word, STYLES[word])
