"""``agentgym runs``: runs on disk, finished or not."""

from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.options import AsJson, Runs
from agentgym.cli.output import print_json, print_result, progress_console

app = typer.Typer(name="runs", help="Runs on disk.", no_args_is_help=True)


@app.command("list")
def list_runs(output: Runs = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs with their status and what they reached."""
    print_result(listing.runs(output, as_json=as_json))


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="Its folder or its name.")],
    output: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show a run: its settings, its steps, and its result once there is one."""
    from agentgym.train.result import TrainingResult
    from agentgym.train.run_folder import RunFolder

    folder = RunFolder.open(run, output)
    record, result = folder.record(), TrainingResult.load(folder.path)
    record["status"] = listing.run_status(folder.path, record)
    if as_json:
        print_json({**record, "steps": folder.metrics(), "result": result})
    else:
        from agentgym.ui.cards import run_view

        progress_console().print(run_view(folder, record["status"], result))
