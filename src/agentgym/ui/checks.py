"""Show the results of the checks of a scenario."""

from collections.abc import Sequence
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


def tripwires_view(findings: "Sequence[Finding]") -> RenderableType:
    """Return a view of the checks that a scenario must pass before training."""
    return grid(
        *((styled(f.status), Text(f.name, "bold"), Text(f.why)) for f in findings)
    )


def styled(word: str) -> Text:
    """Return a status in its color."""
    return Text(word, STYLES[word])
