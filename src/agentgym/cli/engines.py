"""``agentgym engine``: install and check the environments of engines."""

from typing import TYPE_CHECKING, Annotated

import typer

from agentgym.cli.options import AsJson
from agentgym.cli.output import print_json, progress_console
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.engines.base import EngineFactory
    from agentgym.engines.environments import EngineEnvironment

app = typer.Typer(
    name="engine",
    help="Environments of engines: install, check.",
    no_args_is_help=True,
)
Named = Annotated[
    str, typer.Argument(metavar="ENGINE", help="vllm, verl or lightning.")
]


@app.command()
def install(
    engine: Named,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Of vllm: its build for machines without GPU.")
    ] = False,
) -> None:
    """Install an engine with uv, in its own environment, in compatible versions."""
    _, environment = _environment(engine)
    console = progress_console()
    for step in environment.install(for_cpu=cpu):
        console.print(step, soft_wrap=True)


@app.command()
def check(engine: Named, as_json: AsJson = False) -> None:
    """Check whether an engine can run on this machine; exits with 1 if it cannot.

    If nothing is missing, the engines vllm and verl are started with a tiny model,
    which must answer one request.
    """
    factory, _ = _environment(engine)
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


def _environment(engine: str) -> "tuple[EngineFactory, EngineEnvironment]":
    from agentgym.engines.registry import ENGINES

    factory = ENGINES.get(engine)
    if factory.environment is None:
        raise UsageError(
            f"The engine {engine!r} needs no environment of its own: there is nothing "
            "to install or check apart from `agentgym doctor`."
        )
    return factory, factory.environment
