"""``agentgym inspect``: describe an agent, and check whether it can be trained."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import (
    REFERENCE,
    AllowTool,
    AsJson,
    CheckCommand,
    Command,
    ToolAnswers,
    ToolsFrom,
    named_agent,
    option,
    own_tools,
    takes,
    tasks_or_scenario,
    with_tools,
)
from agentgym.cli.output import (
    announce_trial,
    print_json,
    print_result,
    progress_console,
)
from agentgym.errors import UnsupportedError, UsageError
from agentgym.scenarios.packs import is_tasks_file

if TYPE_CHECKING:
    from agentgym.core.tools import Tool
    from agentgym.rollout.inspection import AgentReport

_ANY_TASKS = "".join(
    f'{{"instruction": "Please help me with request {n}."}}\n' for n in range(14)
)
"""A tasks file for the trial of an agent without tasks."""
_OF_AGENT = (
    *("framework", "model", "agent.context", "agent.inputs", "agent.on_interrupt"),
    *("agent.configurable", "agent.allow_host"),
)
"""Settings on which the trial of an agent depends."""


@takes(*_OF_AGENT)
def inspect(
    given: dict[str, Any],
    agent: str | None = typer.Argument(
        None,
        help="module:name of the agent, or of its factory; or a graph's name in "
        "langgraph.json. Without it, the agents that the project's files name.",
        show_default=False,
    ),
    scenario: str | None = typer.Argument(
        None, help="What to try it on; by default its own tools."
    ),
    named: str | None = option("The same as AGENT.", "--agent", metavar=REFERENCE),
    tasks: Path | None = option("Try it on this tasks file, as `train --tasks` does."),
    program: Command = None,
    check_command: CheckCommand = None,
    tools_from: ToolsFrom = None,
    tools: ToolAnswers = None,
    allow_tool: AllowTool = None,
    as_json: AsJson = False,
) -> None:
    """Show an agent's parts, and try it once with a scripted model.

    Shows its roles, prompts, tools and model, how the model is replaced, and which
    parts do not work and why. Nothing is trained, no tool really runs, and no provider
    gets a request. Exits with 1 if the agent cannot be trained without a change.

    Example: agentgym inspect app.agents:graph
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.rollout.absolute_paths import located
    from agentgym.rollout.inspection import probed
    from agentgym.ui.cards import inspection_view

    if agent is not None and named is not None:
        raise UsageError(f"Which agent? Give {agent} or --agent {named}, not both.")
    agent = named_agent(agent or named, program)
    if agent is None:
        _list_agents(as_json)
        return
    announce_trial(agent, as_json)
    given["agent.reference"] = agent
    scenario = tasks_or_scenario(scenario, tasks)
    if scenario is None or is_tasks_file(scenario):
        report = _on_tasks(
            given,
            scenario,
            tools_from=tools_from,
            tools=tools,
            allow_tool=allow_tool,
            check_command=check_command,
        )
    else:
        scenario = with_tools(scenario, tools_from, check_command=check_command)
        given |= {"scenario": scenario, **own_tools(tools, allow_tool)}
        report = probed(located(TrainingConfig.create(**given)))
    if as_json:
        print_json(report)
        raise typer.Exit(1 if report.problems else 0)
    progress_console().print(inspection_view(report))
    if report.problems:
        refusal = UnsupportedError(" ".join(report.problems), report.options)
        refusal.exit_code = 1
        raise refusal


def _list_agents(as_json: bool) -> None:
    """Print the agents in this folder's project files, and how to inspect each.

    Project files are ``langgraph.json`` and the ``pyproject.toml`` of a CrewAI project.
    """
    from agentgym.integrations.projects import project_agents

    rows = [
        {
            "name": each.name,
            "framework": each.framework,
            "file": each.source,
            "reference": each.reference,
            "command": f"agentgym inspect {each.name}",
        }
        for each in project_agents()
    ]
    if as_json:
        print_json(rows)
    elif not rows:
        raise UsageError(
            "Which agent? Write module:name, as in `agentgym inspect app.agents:graph`."
            " This folder has no langgraph.json with a Python graph, and no "
            "pyproject.toml of a CrewAI project with a @CrewBase class."
        )
    else:
        lines = [
            f"{row['name']}  ({row['reference']}, {row['file']})\n  {row['command']}\n"
            for row in rows
        ]
        print_result("".join(lines))


def tried(agent: str, given: Mapping[str, Any] | None = None) -> "AgentReport":
    """Return a report on trials of an agent; ``given`` are settings, e.g. framework.

    Raises:
        UnsupportedError: The trials show no tools; the message says why.
    """
    announce_trial(agent, as_json=False)
    settings = {key: (given or {}).get(key) for key in _OF_AGENT}
    settings["agent.reference"] = agent
    report = _on_tasks(settings, None)
    if report.problems:
        raise UnsupportedError(" ".join(report.problems))
    return report


def tools_of(report: "AgentReport") -> "list[Tool]":
    """Return the tools of an agent's trials.

    An agent that answers in forms alone has none: then these are its tools.
    """
    from agentgym.rollout.inspection import IS_ANSWER, PASSES_ON
    from agentgym.scenarios.schemas import spec_of_openai
    from agentgym.scenarios.tool_tasks.user_code import unseen_tool

    fates = {name: report.own.get(name) for name in report.offered}
    named = [name for name in fates if fates[name] not in (PASSES_ON, IS_ANSWER)]
    named = named or [name for name in fates if fates[name] != PASSES_ON]
    return [unseen_tool(spec_of_openai(report.offered[name])) for name in named]


def _on_tasks(
    given: dict[str, Any], tasks: str | None, **options: Any
) -> "AgentReport":
    """Try an agent on a tasks file, and return a report about the agent.

    If ``tasks`` is None, each task is any request, or one for a tool of
    ``tools_from``. ``options`` are arguments of :func:`with_tools`.
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.rollout.absolute_paths import located
    from agentgym.rollout.inspection import probed
    from agentgym.scenarios.tool_tasks.starter import starter
    from agentgym.scenarios.tool_tasks.user_code import NO_CHECK, load_tools

    with TemporaryDirectory(prefix="agentgym-inspect-") as folder:
        if tasks is None:
            path = Path(folder) / "its_own_tools.jsonl"
            text = _ANY_TASKS
            if (tools_from := options.get("tools_from")) is not None:
                text = starter(load_tools(tools_from))
            else:
                options["check"] = NO_CHECK
            path.write_text(text, encoding="utf-8")
            tasks = str(path)
        scenario = with_tools(tasks, **options)
        config = TrainingConfig.create(**given, scenario=scenario)
        return probed(located(config))
