"""``agentgym scenarios``: what can be trained on."""

from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.options import AsJson, opt
from agentgym.cli.output import print_json, print_result, progress_console

app = typer.Typer(
    name="scenarios", help="What can be trained on.", no_args_is_help=True
)
Reference = Annotated[str, typer.Argument(help="Of the scenario, or a path.")]


@app.command("list")
def list_scenarios(as_json: AsJson = False) -> None:
    """List the scenarios."""
    print_result(listing.scenarios(as_json=as_json))


@app.command()
def show(name: Reference, as_json: AsJson = False) -> None:
    """Show a scenario: its tools, rules, goal and an example of its tasks."""
    from agentgym.scenarios.registry import get_scenario

    scenario = get_scenario(name)
    try:
        if as_json:
            print_json(scenario.card())
        else:
            from agentgym.ui.cards import scenario_view

            progress_console().print(scenario_view(scenario))
    finally:
        scenario.close()


@app.command()
def check(
    name: Reference,
    tasks: Annotated[int, opt("Training tasks that each agent plays.", min=1)] = 60,
    seed: Annotated[int, opt("Of the tasks.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Run the tripwires: what a scenario must not do before it is trained on.

    Exits with 1 if one fails.
    """
    from agentgym.evaluate.check import check_scenario

    findings = check_scenario(name, tasks=tasks, seed=seed)
    failed = any(finding.status == "fail" for finding in findings)
    if as_json:
        print_json({"scenario": name, "passed": not failed, "tripwires": findings})
    else:
        from agentgym.ui.health import tripwires_view

        progress_console().print(tripwires_view(findings))
    if failed:
        raise typer.Exit(1)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Small letters, digits and _.")],
) -> None:
    """Write a scenario pack that works into ./scenarios/NAME, to be changed."""
    from agentgym.scenarios.new_pack import write_pack

    folder = write_pack(name)
    typer.echo(f"Wrote {folder}: a scenario that works. Change it, and then:")
    for command in (
        f"agentgym scenarios check {name}",
        f"pytest {folder}",
        f"agentgym train {name} --episodes 64 --framework native",
    ):
        typer.echo(f"    {command}")
