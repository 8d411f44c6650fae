"""``agentgym scenarios``: list, show, make and check scenarios."""

from contextlib import closing
from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.options import (
    AgentTools,
    AsJson,
    CheckFunction,
    ToolAnswers,
    ToolsFrom,
    option,
    tools_reference,
    with_tools,
)
from agentgym.cli.output import print_json, print_result, progress_console
from agentgym.cli.tasks import Output, refuse_existing, write_tasks
from agentgym.errors import NotFoundError, UsageError

app = typer.Typer(
    name="scenarios", help="List, show, make and check scenarios.", no_args_is_help=True
)
Reference = Annotated[str, typer.Argument(help="A scenario's name or path.")]


@app.command("list")
def list_scenarios(as_json: AsJson = False) -> None:
    """List the scenarios."""
    print_result(listing.scenarios(as_json=as_json))


@app.command()
def show(
    name: Reference,
    tools_from: ToolsFrom = None,
    agent: AgentTools = None,
    as_json: AsJson = False,
) -> None:
    """Show a scenario: its tools, rules, goal and an example of its tasks."""
    from agentgym.scenarios.registry import get_scenario

    reference = with_tools(name, tools_reference(tools_from, agent))
    with closing(get_scenario(reference)) as scenario:
        if as_json:
            print_json(scenario.card())
        else:
            from agentgym.ui.cards import scenario_view

            progress_console().print(scenario_view(scenario))


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A scenario with data, as bfcl.")],
) -> None:
    """Download a benchmark's data from the package index, once.

    The data are stored in AGENTGYM_HOME, not in this Python environment.
    """
    from agentgym.scenarios.registry import BUILT_IN, class_of

    places = {each: class_of(each).data_folder() for each in BUILT_IN}
    place = places.get(name)
    if place is None:
        known = [each for each, folder in places.items() if folder is not None]
        raise NotFoundError("scenario whose data can be fetched", name, known)
    if place.is_dir():
        typer.echo(f"{place} exists already.")
        return
    typer.echo(f"Fetching into {place}.", err=True)
    fetched = class_of(name).fetch_data()
    typer.echo(f"Wrote {fetched}. Measure a model: agentgym eval {name} --model MODEL")


@app.command()
def check(
    name: Reference,
    tasks: int = option("Training tasks that each agent plays.", default=60, min=1),
    seed: int = option("Seed of the tasks.", default=0, min=0),
    tools_from: ToolsFrom = None,
    agent: AgentTools = None,
    tools: ToolAnswers = None,
    check_function: CheckFunction = None,
    as_json: AsJson = False,
) -> None:
    """Run the tripwires: checks that a scenario must pass before training.

    Exits with 1 if one fails.
    """
    from agentgym.evaluate.check import check_scenario

    whose = tools_reference(tools_from, agent)
    reference = with_tools(name, whose, tools, check=check_function)
    findings = check_scenario(reference, tasks=tasks, seed=seed)
    failed = any(finding.status == "fail" for finding in findings)
    if as_json:
        print_json({"scenario": name, "passed": not failed, "tripwires": findings})
    else:
        from agentgym.ui.layout import tripwires_view

        progress_console().print(tripwires_view(findings))
    if failed:
        raise typer.Exit(1)


@app.command()
def tasks(
    name: Reference,
    split: str = option("train, validation or test.", default="train"),
    count: int = option("Tasks, at most.", default=100, min=1),
    seed: int = option("Seed of the tasks.", default=0, min=0),
    tools_from: ToolsFrom = None,
    agent: AgentTools = None,
    output: Output = None,
) -> None:
    """Print tasks as rows of a data set, for another trainer.

    Each line is {"task": TEXT}, where TEXT is the task as JSON.
    """
    import json

    from agentgym.core.task import Split
    from agentgym.rollout.record import as_row
    from agentgym.scenarios.registry import get_scenario
    from agentgym.scenarios.task_lists import make_tasks

    if split not in set(Split):
        raise UsageError(f"No split is named {split!r}; known: {', '.join(Split)}.")
    refuse_existing(output)
    reference = with_tools(name, tools_reference(tools_from, agent))
    with closing(get_scenario(reference)) as scenario:
        made = make_tasks(scenario, Split(split), seed, count)
    write_tasks("".join(f"{json.dumps(as_row(task))}\n" for task in made), output)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Small letters, digits and _.")],
    template: str = option(
        "The template: heating (tools that change a state) or repair "
        "(files, a sandbox, hidden tests).",
        default="heating",
    ),
) -> None:
    """Write a complete example scenario to ./scenarios/NAME, for you to change."""
    from agentgym.scenarios.new_pack import write_pack

    folder = write_pack(name, template=template)
    typer.echo(f"Wrote {folder}: a scenario that works. Change it, and then:")
    for command in (
        f"agentgym scenarios check {name}",
        f"pytest {folder}",
        f"agentgym train {name} --episodes 64 --framework native",
    ):
        typer.echo(f"    {command}")
