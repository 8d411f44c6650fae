"""``agentgym agents``: trained agents saved in ``AGENTGYM_HOME``."""

from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.options import AsJson
from agentgym.cli.output import print_json, print_result, progress_console

app = typer.Typer(name="agents", help="Trained agents.", no_args_is_help=True)


@app.command("list")
def list_agents(as_json: AsJson = False) -> None:
    """List the agents saved in AGENTGYM_HOME."""
    print_result(listing.agents(as_json=as_json))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A saved name, or a folder.")],
    as_json: AsJson = False,
) -> None:
    """Show an agent: where it comes from, its tools, and what it reached."""
    import json

    from agentgym.train.trained_agent import AGENT_FILE, TrainedAgent

    agent = TrainedAgent.load(name)
    if as_json:
        print_json(json.loads((agent.path / AGENT_FILE).read_text(encoding="utf-8")))
    else:
        from agentgym.ui.cards import agent_view

        progress_console().print(agent_view(agent))
