"""``agentgym runs``: runs on disk, finished or not."""

from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.output import AsJson, print_json, print_result, progress_console

_Output = Annotated[Path, typer.Option(help="Folder of runs.")]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(help="Runs on disk.", no_args_is_help=True)
    group.command("list")(list_runs)
    group.command("show")(show)
    app.add_typer(group, name="runs")


def list_runs(output: _Output = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs with their status and what they reached."""
    print_result(listing.runs(output, as_json=as_json))


def show(
    run: Annotated[str, typer.Argument(help="Its folder or its name.")],
    output: _Output = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show a run: its settings, its steps, and its result once there is one."""
    from agentgym.train.result import TrainingResult
    from agentgym.train.run_folder import RunFolder

    folder = RunFolder.open(run, output)
    record, result = folder.record(), TrainingResult.load(folder.path)
    status = listing.run_status(folder.path, record)
    if as_json:
        found = None if result is None else result.model_dump(mode="json")
        print_json(
            {**record, "status": status, "steps": folder.metrics(), "result": found}
        )
        return
    from agentgym.ui.cards import run_view

    console = progress_console(False)
    console.print(run_view(folder, status, result, console.width))
