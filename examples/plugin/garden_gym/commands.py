"""The command ``agentgym garden``."""

import typer

from agentgym import Split

from .scenario import BEDS


def garden(split: str = typer.Option("train", help="Whose beds.")) -> None:
    """List the beds of the garden.

    Example: agentgym garden --split test
    """
    typer.echo(", ".join(BEDS[Split(split)]))
