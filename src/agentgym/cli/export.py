"""``agentgym export``: a trained agent's weights as a folder for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.options import opt
from agentgym.cli.output import progress_console


def export(
    name: Annotated[
        str, typer.Argument(help="NAME, NAME@N, a folder, or a Hugging Face id.")
    ],
    output: Annotated[Path, opt("Folder to write; it must not be there yet.")],
    form: Annotated[
        str, opt("hf: as it was trained; merged: adapters merged.", "--format")
    ] = "merged",
) -> None:
    """Write an agent's weights as transformers, peft and vLLM load them.

    An agent that was trained with LoRA is an adapter, which needs its base model;
    merged makes one model of both.
    """
    from agentgym.train.trained_agent import TrainedAgent

    agent = TrainedAgent.load(name)
    if agent.unchecked:
        typer.echo(f"Warning: {agent.unchecked}", err=True)
    folder = agent.export(output, form)
    progress_console().print(f"{agent.name} is in {folder}", soft_wrap=True)
