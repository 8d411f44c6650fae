"""Show the results of checks: of a machine, a run or a scenario."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agentgym.doctor.evidence import Evidence
from agentgym.doctor.machine import Check
from agentgym.doctor.run import Obstacle
from agentgym.evaluate.check import Finding
from agentgym.evaluate.numbers import plural
from agentgym.ui.layout import grid
from agentgym.ui.roles import roles_view
from agentgym.ui.tables import ledger_view

_STYLES = {
    **dict.fromkeys(("ok", "pass"), "green"),
    **dict.fromkeys(("missing", "warning", "warn"), "yellow"),
    **dict.fromkeys(("broken", "critical", "fail"), "bold red"),
    "info": "cyan",
    "skip": "dim",
}


def checks_view(checks: Sequence[Check]) -> RenderableType:
    """Return a view of the checks of a machine."""
    table = grid()
    table.add_column(style="dim", overflow="fold")
    for check in checks:
        table.add_row(check.name, _styled(check.state), check.detail)
    return table


def tripwires_view(findings: Sequence[Finding]) -> RenderableType:
    """Return a view of the checks that a scenario must pass before training."""
    return grid(
        *((_styled(f.status), Text(f.name, "bold"), Text(f.why)) for f in findings)
    )


def findings_view(
    run: Evidence, findings: Sequence[Obstacle], status: str
) -> RenderableType:
    """Return a view of the reasons why a run does not learn.

    Above them are the counts of model calls that were trained, masked or dropped.
    """
    head = f"{status}, {plural(len(run.steps), 'step')}, "
    head += plural(run.episodes, "rollout")
    parts: list[RenderableType] = [Text(head, "dim"), ledger_view(run.ledger)]
    parts += [*roles_view(run.ledger, run.baseline, run.validation), Text("")]
    if not findings:
        parts.append(Text("Nothing stands in the way of learning.", "green"))
    for number, finding in enumerate(findings):
        likeliest = number == 0 and finding.severity != "info"
        title = Text.assemble(
            ("Likeliest cause: " if likeliest else "", "bold"),
            (finding.title, _STYLES[finding.severity]),
            (f"  ({finding.severity})", "dim"),
        )
        detail = Text(f"{finding.evidence}\n{finding.advice}")
        parts += [title, Padding(detail, (0, 0, 1, 2))]
    return Group(*parts)


def _styled(word: str) -> Text:
    return Text(word, _STYLES[word])
