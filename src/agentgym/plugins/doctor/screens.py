"""Show why a run does not learn."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agentgym.evaluate.numbers import plural
from agentgym.evaluate.rows import ledger_lines, ledger_spans, metrics_lines
from agentgym.plugins.doctor.run import Evidence, Obstacle
from agentgym.ui.layout import STYLES
from agentgym.ui.run import roles_view


def findings_view(
    run: Evidence, findings: Sequence[Obstacle], status: str
) -> RenderableType:
    """Return a view of the ledger and of the reasons why a run does not learn."""
    head = f"{status}, {plural(len(run.steps), 'step')}, "
    head += plural(run.episodes, "rollout")
    parts: list[RenderableType] = [Text(head, "dim")]
    parts.append(Text.assemble(*ledger_spans(run.ledger)))
    measured = metrics_lines(run.baseline, run.validation)
    parts += [*roles_view(ledger_lines(run.ledger), measured), Text("")]
    if not findings:
        parts.append(Text("Nothing stands in the way of learning.", "green"))
    for number, finding in enumerate(findings):
        likeliest = number == 0 and finding.severity != "info"
        title = Text.assemble(
            ("Likeliest cause: " if likeliest else "", "bold"),
            (finding.title, STYLES[finding.severity]),
            (f"  ({finding.severity})", "dim"),
        )
        detail = Text(f"{finding.evidence}\n{finding.advice}")
        parts += [title, Padding(detail, (0, 0, 1, 2))]
    return Group(*parts)
