"""``agentgym engine``: environments of engines that have one of their own."""

from typing import Annotated

import typer

from agentgym.cli.options import AsJson
from agentgym.cli.output import print_json, progress_console

app = typer.Typer(
    name="engine",
    help="Environments of engines: install, check.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Named = Annotated[str, typer.Argument(metavar="ENGINE", help="verl.")]


@app.command()
def install(engine: Named) -> None:
    """Make an engine's environment with uv, with versions that work together."""
    _require(engine)
    from agentgym.engines.verl import environment

    console = progress_console()
    for step in environment.install():
        console.print(step, soft_wrap=True)


@app.command()
def check(engine: Named, as_json: AsJson = False) -> None:
    """Look at an engine's environment and the GPUs; exits with 1 if it will not run."""
    _require(engine)
    from agentgym.engines.verl import environment

    found = environment.check()
    if as_json:
        print_json([finding._asdict() for finding in found])
    else:
        console = progress_console()
        for finding in found:
            mark = "ok  " if finding.is_good else "MISS"
            console.print(f"{mark}  {finding.name}: {finding.text}", soft_wrap=True)
    if not all(finding.is_good for finding in found):
        raise typer.Exit(1)


def _require(engine: str) -> None:
    from agentgym.errors import NotFoundError

    known = ("verl",)
    if engine not in known:
        raise NotFoundError("engine with an environment of its own", engine, known)
