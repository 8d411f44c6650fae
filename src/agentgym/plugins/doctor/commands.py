"""``agentgym doctor``: check this machine, or say why a run does not learn."""

from pathlib import Path
from typing import Any

import typer

from agentgym.cli.options import AsJson, Runs
from agentgym.cli.output import print_json, progress_console
from agentgym.train.status import run_status


def doctor(
    run: str | None = typer.Argument(
        None, help="A run's folder or name; none: this machine."
    ),
    output: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Check this machine; or, with RUN, say why a run does not learn.

    Exits with 1 if something is broken.

    Example: agentgym doctor runs/coding
    """
    body: Any
    missing: list[str] = []
    if run is None:
        from agentgym.plugins.doctor.machine import check_machine
        from agentgym.ui.layout import checks_view

        body = checks = list(check_machine())
        view = checks_view((c.name, c.state, c.detail) for c in checks)
        broken = any(check.state == "broken" for check in checks)
        missing = [f"\n{c.name}:\n  {c.install}" for c in checks if c.install]
    else:
        from agentgym.plugins.doctor.run import diagnose, read_evidence
        from agentgym.plugins.doctor.screens import findings_view
        from agentgym.train.run_folder import RunFolder

        folder = RunFolder.open(run, output)
        evidence = read_evidence(folder)
        status = run_status(folder.path, folder.record())
        findings = diagnose(evidence)
        body = {"status": status, "ledger": evidence.ledger, "findings": findings}
        view = findings_view(evidence, findings, status)
        broken = any(finding.severity == "critical" for finding in findings)
    if as_json:
        print_json(body)
    else:
        console = progress_console()
        console.print(view)
        for text in missing:
            console.print(text, soft_wrap=True)  # a command can be copied as one line
    if broken:
        raise typer.Exit(1)
