"""``agentgym doctor``: what is wrong with this machine, or with a run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from agentgym.cli.listing import run_status
from agentgym.cli.options import AsJson, Runs
from agentgym.cli.output import print_json, progress_console


def doctor(
    run: Annotated[
        str | None, typer.Argument(help="A run's folder or name; none: this machine.")
    ] = None,
    output: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Check this machine; or, with RUN, say why a run does not learn.

    Exits with 1 if something is broken.
    """
    from agentgym.doctor.evidence import read_evidence
    from agentgym.doctor.machine import check_machine
    from agentgym.doctor.run import diagnose
    from agentgym.train.run_folder import RunFolder
    from agentgym.ui.health import checks_view, findings_view

    body: Any
    if run is None:
        body = checks = check_machine()
        view = checks_view(checks)
        broken = any(check.state == "broken" for check in checks)
    else:
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
        progress_console().print(view)
    if broken:
        raise typer.Exit(1)
