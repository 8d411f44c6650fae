"""``agentgym doctor``: what is wrong with this machine, or with a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.listing import run_status
from agentgym.cli.output import AsJson, print_json, progress_console


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(doctor)


def doctor(
    run: Annotated[
        str | None, typer.Argument(help="A run's folder or name; none: this machine.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder of runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Check this machine; or, with RUN, say why a run does not learn.

    Exits with 1 if something is broken.
    """
    console = progress_console(False)
    if run is None:
        from agentgym.doctor.machine import check_machine
        from agentgym.ui.health import checks_view

        checks = check_machine()
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            console.print(checks_view(checks))
        broken = any(check.state == "broken" for check in checks)
    else:
        from agentgym.doctor.evidence import read_evidence
        from agentgym.doctor.run import diagnose
        from agentgym.train.run_folder import RunFolder
        from agentgym.ui.health import findings_view

        folder = RunFolder.open(run, output)
        evidence = read_evidence(folder)
        status = run_status(folder.path, folder.record())
        findings = diagnose(evidence)
        if as_json:
            print_json(
                {
                    "status": status,
                    "ledger": evidence.ledger.model_dump(mode="json"),
                    "findings": [asdict(finding) for finding in findings],
                }
            )
        else:
            console.print(findings_view(evidence, findings, status))
        broken = any(finding.severity == "critical" for finding in findings)
    if broken:
        raise typer.Exit(1)
