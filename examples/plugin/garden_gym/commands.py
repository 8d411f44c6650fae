"""The command ``agentgym garden``."""

from typing import Annotated

import typer

from agentgym import Split

from .scenario import BEDS


def garden(
    split: Annotated[Split, typer.Option(help="Whose beds.")] = Split.TRAIN,
) -> None:
    """List the beds of the garden.

    Example: agentgym garden --split test
    """
    typer.echo(", ".join(BEDS.get(split, [])))
