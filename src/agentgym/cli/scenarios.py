"""``agentgym scenarios``: what can be trained on."""

from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.output import print_json, progress_console

_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(help="What can be trained on.", no_args_is_help=True)
    group.command("list")(list_scenarios)
    group.command("show")(show)
    app.add_typer(group, name="scenarios")


def list_scenarios(as_json: _AsJson = False) -> None:
    """List the scenarios."""
    typer.echo(listing.scenarios(as_json=as_json), nl=False)


def show(
    name: Annotated[str, typer.Argument(help="Of the scenario.")],
    as_json: _AsJson = False,
) -> None:
    """Show a scenario: its tools, rules, goal and an example of its tasks."""
    from agentgym.scenarios.registry import get_scenario

    scenario = get_scenario(name)
    try:
        if as_json:
            print_json(scenario.card())
        else:
            from agentgym.ui.cards import scenario_view

            progress_console(False).print(scenario_view(scenario))
    finally:
        scenario.close()
