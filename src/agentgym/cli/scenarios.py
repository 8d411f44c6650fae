"""``agentgym scenarios`` and ``tasks``: make and check scenarios and tasks files."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentgym.cli import listing
from agentgym.cli.options import (
    AgentTools,
    AllowTool,
    AsJson,
    CheckFunction,
    ToolAnswers,
    ToolsFrom,
    flag,
    opt,
    option,
    tools_reference,
    with_tools,
)
from agentgym.cli.output import print_json, print_result, progress_console
from agentgym.errors import NotFoundError, UnsupportedError, UsageError
from agentgym.security.redaction import redacted

if TYPE_CHECKING:
    from agentgym.core.tools import Tool
    from agentgym.scenarios.tool_tasks.logs import FromLogs

app = typer.Typer(
    name="scenarios", help="List, show, make and check scenarios.", no_args_is_help=True
)
task_files = typer.Typer(
    name="tasks",
    help="Make tasks files: of schemas, logs, reviews.",
    no_args_is_help=True,
)
Reference = Annotated[str, typer.Argument(help="A scenario's name or path.")]
_MOST_SHOWN = 8
Tools = Annotated[
    str | None, opt("module:name of your tools: a list of functions with types.")
]
Output = Annotated[
    Path | None, opt("Write it there, not to standard output.", "--output")
]


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
def fetch(name: Annotated[str, typer.Argument(help="A benchmark: bfcl.")]) -> None:
    """Download a benchmark's data from the package index, once.

    The data are stored in AGENTGYM_HOME, not in this Python environment.
    """
    from agentgym.scenarios.bfcl import package

    if name != "bfcl":
        raise NotFoundError("benchmark that can be fetched", name, ["bfcl"])
    place = package.fetched()
    if place.is_dir():
        typer.echo(f"{place} exists already.")
        return
    typer.echo(
        f"Fetching {package.DISTRIBUTION} {package.VERSION} (2 MB, Apache-2.0) from "
        f"the package index into {place}.",
        err=True,
    )
    package.fetch()
    typer.echo(f"Wrote {place}. Measure a model: agentgym eval bfcl --model MODEL")


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
        from agentgym.ui.checks import tripwires_view

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
    from agentgym.rollout.task_input import as_row
    from agentgym.scenarios.registry import get_scenario
    from agentgym.scenarios.task_lists import make_tasks

    if split not in set(Split):
        raise UsageError(f"No split is named {split!r}; known: {', '.join(Split)}.")
    _refuse_existing(output)
    reference = with_tools(name, tools_reference(tools_from, agent))
    with closing(get_scenario(reference)) as scenario:
        made = make_tasks(scenario, Split(split), seed, count)
    _write("".join(f"{json.dumps(as_row(task))}\n" for task in made), output)


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


@task_files.command()
@app.command()
def starter(
    tools_from: Tools = None,
    agent: AgentTools = None,
    model: str | None = option(
        "Let a model write the requests: openai:MODEL, or the address of a server. "
        "By default they are made without one.",
        "--model-for-tasks",
    ),
    output: Output = None,
) -> None:
    """Generate a tasks file from the schemas of your tools, for you to correct.

    With --model-for-tasks the schemas, and an agent's system prompts, are sent to the
    model's server.
    """
    from agentgym.scenarios.tool_tasks.starter import starter as make

    _refuse_existing(output)
    if model is None:
        _write(make(_needed_tools(tools_from, agent)), output)
        return
    from agentgym.core.background import in_background
    from agentgym.models.reference import resolve_model
    from agentgym.scenarios.tool_tasks.written import written_tasks

    endpoint = resolve_model(model)  # importing an agent may set placeholder keys
    tools = _needed_tools(tools_from, agent)
    prompts = [] if agent is None else _prompts(agent)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    also = f" and {agent}'s system prompts" if prompts else ""
    say(
        f"Asking {endpoint.model} at {endpoint.description}. It is sent the schemas of "
        f"{len(tools)} tools{also}."
    )
    made = in_background(written_tasks(endpoint, tools, prompts, on_progress=say))
    _write(made.text, output)
    say(f"{made.tasks} tasks. Read every line before you train on it.")
    dropped = made.dropped.most_common()
    for why, count in dropped[:_MOST_SHOWN]:
        say(f"Left out {count}: {why}.")
    if more := sum(count for _, count in dropped[_MOST_SHOWN:]):
        say(f"Left out {more} more.")


@task_files.command("from-logs")
@app.command("from-logs")
def from_logs(
    file: Annotated[
        Path,
        typer.Argument(
            help='JSON Lines of {"messages": […]} or of reviews, runs of LangSmith or '
            "Langfuse, or OTLP JSON."
        ),
    ],
    tools_from: Tools = None,
    agent: AgentTools = None,
    output: Output = None,
) -> None:
    """Make a tasks file from logs: the users' requests and the calls that followed.

    If tools or an agent are given, calls that do not match a tool are left out.
    """
    found = _from_logs(file, tools_from, agent, output)
    calls = "no calls" if not found.answers else f"{found.answers} calls"
    typer.echo(
        f"{found.tasks} tasks from {' and '.join(found.kinds)}; {calls} with "
        "their tool's answer. Read every line: logged calls may be wrong.",
        err=True,
    )


@task_files.command("from-reviews")
def from_reviews(
    file: Annotated[
        Path,
        typer.Argument(
            help="Reviews of agentgym.record_review, or logs of an agent with "
            "LangChain's HumanInTheLoopMiddleware."
        ),
    ],
    tools_from: Tools = None,
    agent: AgentTools = None,
    output: Output = None,
) -> None:
    """Make a tasks file from reviewers' decisions on an agent's calls.

    A task expects the approved calls, and the edited calls in their edited form. It
    forbids tools whose calls were all rejected.
    """
    found = _from_logs(file, tools_from, agent, output, reviewed=True)
    made = ", ".join(f"{kind} {n:,}" for kind, n in sorted(found.decisions.items()))
    typer.echo(f"{found.tasks} tasks from reviewers' decisions: {made}.", err=True)


def _from_logs(
    file: Path,
    tools_from: str | None,
    agent: str | None,
    output: Path | None,
    *,
    reviewed: bool = False,
) -> "FromLogs":
    """Write a tasks file from logs or reviews, and report calls that were left out."""
    from agentgym.scenarios.tool_tasks.logs import from_logs as make
    from agentgym.scenarios.tool_tasks.user_code import load_tools

    _refuse_existing(output)
    whose = tools_reference(tools_from, agent)
    tools = None if whose is None else load_tools(whose)
    found = make(file, tools, reviewed=reviewed)
    _write(found.text, output)
    for why, count in found.skipped.items():
        typer.echo(f"Left out {count}: {why}.", err=True)
    for why, count in found.calls.items():
        typer.echo(f"Left out {count} calls: {why}.", err=True)
    if found.secrets:
        typer.echo(
            f"Replaced {found.secrets} keys or tokens, as SECRET-1; look for others.",
            err=True,
        )
    return found


@task_files.command()
@app.command()
def record(
    tasks: Annotated[Path, typer.Argument(help="A tasks file.")],
    tools_from: Tools = None,
    agent: AgentTools = None,
    allow_tool: AllowTool = None,
    yes: bool = flag("Do not ask.", "--yes"),
) -> None:
    """Call your tools once, and store their answers next to the tasks file.

    Makes each expected call that has no answer yet. Lists these calls and asks before
    it makes them.
    """
    from agentgym.scenarios.tool_tasks.recording import Recording

    tools = _needed_tools(tools_from, agent)
    plan = Recording.plan(tasks, tools, allow_tool or [])
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


def _needed_tools(tools_from: str | None, agent: str | None) -> "list[Tool]":
    from agentgym.cli.inspect import tools_of
    from agentgym.scenarios.tool_tasks.user_code import load_tools

    whose = tools_reference(tools_from, agent)
    if whose is None:
        raise UsageError(
            "Whose tools? Give --tools-from module:TOOLS, a list of functions, or "
            "--agent module:name, an agent that has them."
        )
    return load_tools(whose) if agent is None else tools_of(agent)


def _prompts(reference: str) -> list[str]:
    """Return the system prompts of an agent's roles; [] if they cannot be read."""
    from agentgym.integrations.agent_import import build

    adapter, made = build(reference)
    try:
        roles = adapter.roles(made)
    except UnsupportedError:
        return []
    return [role.system_prompt for role in roles if role.system_prompt]


def _refuse_existing(output: Path | None) -> None:
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; choose another --output.")


def _write(text: str, output: Path | None) -> None:
    """Write the text of a tasks file, without secrets; print it if no file is given."""
    if output is None:
        print_result(text)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(redacted(text))
    except FileExistsError:
        raise UsageError(f"{output} exists; choose another --output.") from None
    except OSError as error:
        raise UsageError(f"Cannot write {output}: {error.strerror}.") from None
    typer.echo(f"Wrote {output}.")
