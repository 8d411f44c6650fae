"""``agentgym engine``: environments of engines that have one of their own."""

from typing import TYPE_CHECKING, Annotated

import typer

from agentgym.cli.options import AsJson
from agentgym.cli.output import print_json, progress_console

if TYPE_CHECKING:
    from agentgym.engines.base import EngineFactory
    from agentgym.engines.environments import Environment

app = typer.Typer(
    name="engine",
    help="Environments of engines: install, check.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Named = Annotated[str, typer.Argument(metavar="ENGINE", help="vllm or verl.")]


@app.command()
def install(engine: Named) -> None:
    """Make an engine's environment with uv, with versions that work together."""
    _, environment = _found(engine)
    console = progress_console()
    for step in environment.install():
        console.print(step, soft_wrap=True)


@app.command()
def check(engine: Named, as_json: AsJson = False) -> None:
    """Look at an engine's environment and the machine; exits with 1 if it will not run.

    Where nothing is missing, a tiny model is started with it and asked once.
    """
    factory, _ = _found(engine)
    found, console = [], progress_console(as_json)
    for finding in factory.examine():
        found.append(finding)
        if not as_json:
            mark = "ok  " if finding.is_good else "MISS"
            console.print(f"{mark}  {finding.name}: {finding.text}", soft_wrap=True)
    if as_json:
        print_json([finding._asdict() for finding in found])
    if not all(finding.is_good for finding in found):
        raise typer.Exit(1)


def _found(engine: str) -> "tuple[EngineFactory, Environment]":
    from agentgym.engines.registry import ENGINES
    from agentgym.errors import UsageError

    factory = ENGINES.get(engine)
    if factory.environment is None:
        raise UsageError(
            f"The engine {engine!r} needs no environment of its own: there is nothing "
            "to install or check beside `agentgym doctor`."
        )
    return factory, factory.environment
