"""``agentgym tasks``: make tasks files, and record answers of tools."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.options import (
    AgentTools,
    AllowTool,
    flag,
    opt,
    option,
    tasks_or_scenario,
    tools_reference,
)
from agentgym.cli.output import print_result
from agentgym.errors import UsageError
from agentgym.security.redaction import redacted

if TYPE_CHECKING:
    from agentgym.core.tools import Tool

app = typer.Typer(
    name="tasks",
    help="Make tasks files: of schemas, logs, reviews.",
    no_args_is_help=True,
)
_MOST_SHOWN = 8
Tools = Annotated[
    str | None, opt("module:name of your tools: a list of functions with types.")
]
Output = Annotated[
    Path | None, opt("Write it there, not to standard output.", "--output")
]


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

    refuse_existing(output)
    if model is None:
        write_tasks(make(needed_tools(tools_from, agent)), output)
        return
    from agentgym.cli.inspect import tools_of, tried
    from agentgym.core.background import in_background
    from agentgym.models.reference import resolve_model
    from agentgym.scenarios.tool_tasks.written import written_tasks

    endpoint = resolve_model(model)  # importing an agent may set placeholder keys
    if agent is None:
        tools, prompts = needed_tools(tools_from, agent), []
    else:
        tools_reference(tools_from, agent)
        report = tried(agent)
        tools = tools_of(report)
        prompts = [role.prompt for role in report.roles if role.prompt]

    def say(text: str) -> None:
        typer.echo(text, err=True)

    also = f" and {agent}'s system prompts" if prompts else ""
    say(
        f"Asking {endpoint.model} at {endpoint.description}. It is sent the schemas of "
        f"{len(tools)} tools{also}."
    )
    made = in_background(written_tasks(endpoint, tools, prompts, on_progress=say))
    write_tasks(made.text, output)
    say(f"{made.tasks} tasks. Read every line before you train on it.")
    dropped = made.dropped.most_common()
    for why, count in dropped[:_MOST_SHOWN]:
        say(f"Left out {count}: {why}.")
    if more := sum(count for _, count in dropped[_MOST_SHOWN:]):
        say(f"Left out {more} more.")


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
    from agentgym.cli.inspect import tools_of, tried
    from agentgym.rollout.inspection import PASSES_ON
    from agentgym.rollout.real_calls import real_tools
    from agentgym.scenarios.tool_tasks.recording import Recording

    allow = allow_tool or []
    tools_reference(tools_from, agent)
    tasks_or_scenario(None, tasks)
    if agent is None:
        plan = Recording.plan(tasks, needed_tools(tools_from, agent), allow)
        calling: AbstractContextManager[dict[str, Tool]] = nullcontext(plan.tools)
    else:
        report = tried(agent)
        tools = tools_of(report)
        plan = Recording.plan(tasks, tools, allow)
        passing = [name for name, fate in report.own.items() if fate == PASSES_ON]
        calling = real_tools(agent, tasks, tools, allow, passing)
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
    with calling as plan.tools:
        made = plan.run()
    typer.echo(f"{made} answers are new in {plan.path}.")
    for problem in plan.failed:
        typer.echo(f"Failed: {problem}", err=True)
    if plan.failed:
        raise typer.Exit(1)


def needed_tools(
    tools_from: str | None, agent: str | None, given: Mapping[str, Any] | None = None
) -> "list[Tool]":
    """Return the tools of --tools-from or --agent; one of them must be given.

    ``given`` are settings of the agent's trial.
    """
    from agentgym.cli.inspect import tools_of, tried
    from agentgym.scenarios.tool_tasks.user_code import load_tools

    whose = tools_reference(tools_from, agent)
    if whose is None:
        raise UsageError(
            "Whose tools? Give --tools-from module:TOOLS, a list of functions, or "
            "--agent module:name, an agent that has them."
        )
    if agent is None:
        return load_tools(whose)
    return tools_of(tried(agent, given))


def refuse_existing(output: Path | None) -> None:
    """Raise UsageError if the file to write exists."""
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; choose another --output.")


def write_tasks(text: str, output: Path | None) -> None:
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
