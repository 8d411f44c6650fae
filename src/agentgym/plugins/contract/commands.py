"""``agentgym test``: test an agent against its contract."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import AsJson, flag, option
from agentgym.cli.output import print_json, progress_console, require_place

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentgym.plugins.contract.verdict import ContractResult


def check(
    contract: Path = typer.Argument(
        Path("contract.yaml"), help="The contract: tasks, samples and limits, in YAML."
    ),
    record: bool = flag("Keep the model's answers in the recording.", "--record"),
    replay: bool = flag("Answer from the recording; no model is asked.", "--replay"),
    faults: str | None = option(
        "Measure the tasks once more with injected faults, as in timeout=0.05.",
        metavar="KIND=SHARE,...",
    ),
    junit: Path | None = option("Write JUnit's XML, which CI systems show."),
    markdown: Path | None = option("Write a Markdown report."),
    html: Path | None = option(
        "Write the report as one HTML file, which needs no other."
    ),
    as_json: AsJson = False,
) -> None:
    """Test an agent against its contract in CI.

    Exits with 1 if the contract is broken.

    Example: agentgym test contract.yaml --replay
    """
    from agentgym.evaluate.result import write_text
    from agentgym.plugins.contract.run import run_contract
    from agentgym.plugins.contract.verdict import to_junit, to_markdown
    from agentgym.ui.reports import html_page
    from agentgym.ui.terminal_progress import TerminalProgress

    for path in filter(None, (junit, markdown, html)):
        require_place(path)
    console = progress_console(as_json)
    with TerminalProgress(console) as progress:
        verdict = run_contract(
            contract, progress, record=record, replay=replay, faults=faults
        )
    console.print(_view(verdict))
    if as_json:
        print_json(_body(verdict))
    if junit is not None:
        write_text(junit, to_junit(verdict))
    if markdown is not None:
        write_text(markdown, to_markdown(verdict))
    if html is not None:
        write_text(html, html_page(to_markdown(verdict)))
    if verdict.problems:
        raise typer.Exit(1)


def _view(verdict: "ContractResult") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from agentgym.plugins.contract.verdict import headline, limit_rows
    from agentgym.ui.evaluation import variant_rows
    from agentgym.ui.layout import grid, indent

    style = "bold red" if verdict.problems else "bold green"
    notes = [c.sentence for c in verdict.changes if not c.is_request]
    if notes:
        notes.append("The verdict holds if the model would answer the same to these.")
    return Group(
        indent(grid(*limit_rows(verdict), *variant_rows(verdict.evaluation))),
        *(Text(f"- {problem}") for problem in verdict.problems),
        *(Text(note, "yellow") for note in (*notes, *verdict.evaluation.notes)),
        Text(headline(verdict), style),
    )


def _body(verdict: "ContractResult") -> dict[str, Any]:
    return {
        "kept": not verdict.problems,
        "problems": verdict.problems,
        "changes": [change.sentence for change in verdict.changes],
        "replayed": verdict.replayed,
        "evaluation": verdict.evaluation,
    }
