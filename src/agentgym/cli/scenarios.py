"""``agentgym scenarios``: what can be trained on."""

from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.options import (
    AllowTool,
    AsJson,
    CheckFunction,
    ToolAnswers,
    ToolsFrom,
    opt,
    with_tools,
)
from agentgym.cli.output import print_json, print_result, progress_console

app = typer.Typer(
    name="scenarios", help="What can be trained on.", no_args_is_help=True
)
Reference = Annotated[str, typer.Argument(help="Of the scenario, or a path.")]
NeededTools = Annotated[
    str, opt("module:name of your tools: a list of functions with types.")
]


@app.command("list")
def list_scenarios(as_json: AsJson = False) -> None:
    """List the scenarios."""
    print_result(listing.scenarios(as_json=as_json))


@app.command()
def show(
    name: Reference, tools_from: ToolsFrom = None, as_json: AsJson = False
) -> None:
    """Show a scenario: its tools, rules, goal and an example of its tasks."""
    from agentgym.scenarios.registry import get_scenario

    scenario = get_scenario(with_tools(name, tools_from))
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
    tools_from: ToolsFrom = None,
    tools: ToolAnswers = None,
    check_function: CheckFunction = None,
    as_json: AsJson = False,
) -> None:
    """Run the tripwires: what a scenario must not do before it is trained on.

    Exits with 1 if one fails.
    """
    from agentgym.evaluate.check import check_scenario

    reference = with_tools(name, tools_from, tools, check=check_function)
    findings = check_scenario(reference, tasks=tasks, seed=seed)
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


@app.command()
def starter(
    tools_from: NeededTools,
    output: Annotated[
        Path | None, opt("Write it there, not to standard output.", "--output")
    ] = None,
) -> None:
    """Print a tasks file made from the schemas of your tools, to be rewritten."""
    from agentgym.scenarios.tool_tasks.scenario import load_tools
    from agentgym.scenarios.tool_tasks.starter import starter as make

    _write(make(load_tools(tools_from)), output)


@app.command("from-logs")
def from_logs(
    file: Annotated[
        Path, typer.Argument(help='JSON Lines of {"messages": […]}, OpenAI-shaped.')
    ],
    output: Annotated[
        Path | None, opt("Write it there, not to standard output.", "--output")
    ] = None,
) -> None:
    """Make a tasks file of logs: what users asked, and which calls were made."""
    from agentgym.scenarios.tool_tasks.logs import from_logs as make

    found = make(file)
    _write(found.text, output)
    for why, count in found.skipped.items():
        typer.echo(f"Left out {count}: {why}.", err=True)


@app.command()
def record(
    tasks: Annotated[Path, typer.Argument(help="A tasks file.")],
    tools_from: NeededTools,
    allow_tool: AllowTool = None,
    yes: Annotated[bool, opt("Do not ask.", "--yes")] = False,
) -> None:
    """Call your tools once, and keep what they answer beside the tasks file.

    Makes the expected calls that have no answer yet; says which, and asks first.
    """
    from agentgym.errors import UsageError
    from agentgym.scenarios.tool_tasks.recording import Recording
    from agentgym.scenarios.tool_tasks.scenario import load_tools

    plan = Recording.plan(tasks, load_tools(tools_from), allow_tool or [])
    if not plan.calls:
        typer.echo("Every call of these tools has an answer, or accepts any value.")
        return
    for call in plan.calls:
        typer.echo(f"  {call.tool} {dict(call.arguments)}")
    if not yes:
        question = f"These {len(plan.calls)} calls will really be made. Go on?"
        try:
            agreed = typer.confirm(question)
        except typer.Abort:
            agreed = False
        if not agreed:
            raise UsageError("Nothing was called. --yes agrees without being asked.")
    made = plan.run()
    typer.echo(f"{made} answers are new in {plan.path}.")
    for problem in plan.failed:
        typer.echo(f"Failed: {problem}", err=True)
    if plan.failed:
        raise typer.Exit(1)


def _write(text: str, output: Path | None) -> None:
    """Write a tasks file; one that is there stays."""
    from agentgym.errors import UsageError

    if output is None:
        print_result(text)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{output} exists; choose another --output.") from None
    except OSError as error:
        raise UsageError(f"Cannot write {output}: {error.strerror}.") from None
    typer.echo(f"Wrote {output}.")
