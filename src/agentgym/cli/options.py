"""Define options that commands share, and convert them to settings."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agentgym.core.panels import AGENT, OUTPUT, TASKS, TRAINING
from agentgym.errors import ConfigError, NotFoundError, UsageError
from agentgym.scenarios.packs import has_options, is_tasks_file, with_options

if TYPE_CHECKING:
    from agentgym.core.prices import Prices
    from agentgym.train.trained_agent import TrainedAgent

EPILOG = (
    "With any command: --log-level info logs to standard error, "
    "--debug also shows where an error was raised."
)


def opt(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return a typer option for ``Annotated``; without ``names``, typer names it."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def option(text: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Return a typer option, to use as a parameter's default value.

    Without ``names``, the option is named after the parameter.
    """
    panel = more.pop("panel", None)
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


def flag(text: str, name: str, panel: str | None = None) -> Any:
    """Return a typer option that is off by default, without a ``--no-…`` form."""
    return option(text, name, default=False, panel=panel)


@dataclass(frozen=True)
class Taken:
    """The settings for which a command has options; see :func:`takes`."""

    names: tuple[str, ...]
    plugins: bool
    flags: Mapping[str, str]
    more: Mapping[str, Any]


def takes[F: Callable[..., Any]](
    *names: str,
    plugins: bool = False,
    flags: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Callable[[F], F]:
    """Give a command an option for each of these settings.

    The command's parameter ``given`` gets the values that the user gave.

    Args:
        *names: Dotted names of settings.
        plugins: Whether the command has the options of plug-ins' settings, too.
        flags: Other names of options than the usual ones, by setting.
        more: Annotations of further options by name, e.g. :data:`OF_TOOLS`. Their
            values are only in the ``params`` of the command's context.
    """

    def noted(command: F) -> F:
        command.__dict__["takes"] = Taken(names, plugins, flags or {}, more or {})
        return command

    return noted


AsJson = Annotated[bool, opt("Print JSON on stdout.", "--json", panel=OUTPUT)]
Runs = Annotated[Path, opt("Folder of runs.", "--output", file_okay=False)]
Host = Annotated[str, opt("Address to listen on; another than 127.0.0.1 needs a key.")]
Port = Annotated[int, opt("Port to listen on; 0 takes a free one.")]
CacheRequests = Annotated[
    Path | None,
    opt("File of a server's answers, for the same requests at temperature 0."),
]
REFERENCE = "MODULE:NAME"


def project_agent(value: str | None) -> str | None:
    """Return an agent's ``module:name``; look up other names in project files.

    Project files are ``langgraph.json`` and the ``pyproject.toml`` of CrewAI.
    """
    if value is None:
        return value
    from agentgym.integrations.projects import named_in_project

    return named_in_project(value)


def named_model(name: str) -> "TrainedAgent | str":
    """Return the saved agent with this name; if it is a model's name, return the name.

    Raises:
        NotFoundError: It is neither an agent nor a model.
    """
    from agentgym.models import hub
    from agentgym.models.reference import SMOLLM2, is_local, is_remote, require_provider
    from agentgym.train.trained_agent import TrainedAgent

    if not os.path.exists(name) and "@" not in name:
        require_provider(name)
    is_hub_id = hub.is_id(name) and not os.path.exists(name)
    if is_remote(name) or name in ("nano", SMOLLM2) or is_hub_id:
        return name
    try:
        return TrainedAgent.load(name)
    except NotFoundError:
        if is_local(name):
            return name
        raise


Data = Annotated[
    str | None,
    opt(
        "A benchmark's data file; for bfcl a wheel or folder of bfcl-eval, instead of "
        "the one fetched.",
        metavar="PATH",
        panel=TASKS,
    ),
]
Categories = Annotated[
    str | None,
    opt(
        "With bfcl: categories or groups, e.g. simple_python,multiple or live.",
        metavar="NAME,NAME",
        panel=TASKS,
    ),
]
ToolsFrom = Annotated[
    str | None,
    opt(
        "The tools of a tasks file: a list of functions.",
        metavar=REFERENCE,
        panel=TASKS,
    ),
]
ToolAnswers = Annotated[
    Literal["recorded", "stub", "live"] | None,
    opt(
        "Who answers the calls of a tasks file: recorded (the file's answers), stub "
        "(made-up values), or live (the tools themselves).",
        "--tools",
        show_default="recorded",
        panel=TASKS,
    ),
]
AllowTool = Annotated[
    list[str] | None,
    opt(
        "A tool that --tools live may call. Can be given again.",
        metavar="NAME",
        panel=TASKS,
    ),
]
CheckFunction = Annotated[
    str | None,
    opt(
        "Your check(task, calls, state), for a tasks file; `posted`: the reward that a "
        "program posts; `none`: --judge alone ranks attempts.",
        "--check",
        metavar=REFERENCE,
        panel=TASKS,
    ),
]
CheckCommand = Annotated[
    str | None,
    opt(
        "A command that judges a program's folder: exit code 0 or 1, or JSON, "
        '{"reward": 0.5}, on its last line.',
        metavar="COMMAND",
        panel=TASKS,
    ),
]
OF_TOOLS = {
    "tools_from": ToolsFrom,
    "tools": ToolAnswers,
    "allow_tool": AllowTool,
    "check": CheckFunction,
    "check_command": CheckCommand,
}
"""Options for the tools and rewards of tasks; :func:`use_tool_options` reads them."""
OF_TASKS = {"data": Data, "categories": Categories, **OF_TOOLS}
Command = Annotated[
    str | None,
    opt(
        'Your agent, a program in any language: "node agent.js". The task is its '
        "standard input, or {task} or {task_file} in it; {tasks:50}: a process takes "
        "many.",
        "--command",
        metavar="COMMAND",
        panel=AGENT,
    ),
]


def named_agent(
    agent: str | None,
    command: str | None,
    *,
    may_be_saved: bool = False,
    model: str | None = None,
) -> str | None:
    """Return ``module:name`` or a program from ``--agent`` or ``--command``, or None.

    Other names are looked up in the project's files, ``langgraph.json`` and the
    ``pyproject.toml`` of CrewAI, or returned if they may be saved agents; those have
    their own model, so with ``model`` the files' names go first.

    Raises:
        UsageError: Both are given.
    """
    if command is None:
        from agentgym.integrations.projects import project_agents

        names = [each.name for each in project_agents()] if agent and model else []
        return agent if may_be_saved and agent not in names else project_agent(agent)
    from agentgym.programs.program import ProgramCommand

    if agent is not None:
        raise UsageError(
            f"Whose agent? Give --agent {agent} or --command {command!r}, not both."
        )
    return ProgramCommand.parse(command).located().reference


def use_agent(given: dict[str, Any], command: str | None = None) -> str | None:
    """Put the agent of ``--agent`` or ``--command`` into the settings; return it."""
    agent = named_agent(given.pop("agent.reference", None), command)
    given |= {} if agent is None else {"agent.reference": agent}
    return agent


Assigned = Annotated[
    list[str] | None,
    opt(
        "Any other setting, as in learning_rate=1e-4. Can be given again.",
        "--set",
        metavar="KEY=VALUE",
        panel=TRAINING,
    ),
]
AgentTools = Annotated[
    str | None, opt("An agent whose own tools these are.", "--agent", metavar=REFERENCE)
]


def tools_reference(tools_from: str | None, agent: str | None) -> str | None:
    """Return where tools are defined, from ``--tools-from`` or ``--agent``.

    The result is ``module:name`` of tools, ``@module:name`` of an agent that has tools,
    or None if neither option is given.

    Raises:
        UsageError: Both options are given.
    """
    if tools_from is not None and agent is not None:
        raise UsageError(
            f"Whose tools? Give --tools-from {tools_from} or --agent {agent}, not both."
        )
    return tools_from if agent is None else f"@{project_agent(agent)}"


def with_tools(
    scenario: str,
    tools_from: str | None = None,
    tools: str | None = None,
    allow_tool: list[str] | None = None,
    check: str | None = None,
    check_command: str | None = None,
) -> str:
    """Add the values of options for a tasks file to the setting ``scenario``.

    Another scenario is returned unchanged.

    Raises:
        UsageError: An option is given, but the scenario is not a tasks file.
    """
    from agentgym.core.task import TaskSource

    given = {
        "--tools-from": tools_from,
        "--tools": tools,
        "--allow-tool": allow_tool,
        "--check": check,
        "--check-command": check_command,
    }
    if not is_tasks_file(scenario):
        option = next((option for option, value in given.items() if value), None)
        if option is None:
            return scenario
        if not scenario:
            raise UsageError(f"{option} is for a tasks file: give --tasks FILE.")
        raise UsageError(
            f"{option} is for a tasks file, which ends in .jsonl; {scenario!r} brings "
            "its own tools and reward."
        )
    source = TaskSource.parse(scenario)
    chosen = replace(
        source,
        tools=(tools_from,) if tools_from else source.tools,
        answers=TaskSource.answering(tools) if tools else source.answers,
        allow=tuple(allow_tool) if allow_tool else source.allow,
        check=check or source.check,
        check_command=check_command or source.check_command,
    )
    return str(chosen)


def tasks_or_scenario(
    scenario: str | None, tasks: Path | None, *, may_be_texts: bool = False
) -> str | None:
    """Return the setting ``scenario`` from SCENARIO or ``--tasks``, or None.

    With ``may_be_texts``, the lines of a tasks file are not checked.

    Raises:
        UsageError: Both are given, or the tasks file does not exist or is wrong.
    """
    if tasks is not None and scenario is not None:
        raise UsageError(
            f"--tasks {tasks} is a scenario of its own; leave {scenario!r} out."
        )
    if tasks is None and (scenario is None or not is_tasks_file(scenario)):
        return scenario
    reference = str(tasks or scenario)
    path = Path(reference.partition("?")[0])
    if path.suffix != ".jsonl":
        hint = ' One task is a line: {"instruction": "…", "expect": […]}.'
        if path.suffix == ".json":
            hint = f" Make one with: jq -c '.[]' {path}"
        raise UsageError(
            "--tasks takes a JSON Lines file, which ends in .jsonl, not "
            f"{str(path)!r}.{hint}"
        )
    if not path.exists():
        beside = [each.name for each in path.parent.glob("*.jsonl")]
        raise NotFoundError("tasks file", str(path), sorted(beside))
    if not may_be_texts:
        from agentgym.scenarios.tool_tasks.task_file import check_lines

        check_lines(path)  # before an agent is imported, which takes seconds
    return reference


def of_saved(agent: str | None) -> str | None:
    """Return the setting ``scenario`` of the saved agent ``agent``.

    None if ``agent`` is None, or ``module:name`` or a command of the user's own.
    """
    from agentgym.integrations.agent_import import is_reference
    from agentgym.train.trained_agent import TrainedAgent

    if agent is None or is_reference(agent):
        return None
    saved = TrainedAgent.load(agent)
    return saved.same_tasks(saved.spec.scenario) or saved.scenario


def with_data(scenario: str, data: str | None, categories: str | None) -> str:
    """Add the values of ``--data`` and ``--categories`` to the setting ``scenario``.

    Raises:
        UsageError: An option is given, but the scenario is not a benchmark.
    """
    if not has_options(f"{scenario}?"):
        option = "--data" if data else "--categories"
        raise UsageError(f"{option} is for a benchmark, as bfcl; not for {scenario!r}.")
    given = {"data": data, "categories": categories}
    return with_options(scenario, **{name: v for name, v in given.items() if v})


def own_tools(tools: str | None, allow_tool: list[str] | None) -> dict[str, Any]:
    """Return the settings for the agent's tools that the scenario does not have.

    Print a warning with the names of tools that will really be called.
    """
    from agentgym.scenarios.tool_tasks.scenario import warn_of_calls

    if tools not in (None, "stub"):
        raise UsageError(
            f"--tools {tools} is for a tasks file. Next to a scenario's own tools an "
            "agent's can be answered with --tools stub, or run with --allow-tool NAME."
        )
    warn_of_calls(allow_tool or ())
    given = {"agent.own_tools": tools, "agent.allow_tools": allow_tool}
    return {name: value for name, value in given.items() if value}


def with_assigned(given: dict[str, Any], words: Sequence[str] | None) -> dict[str, Any]:
    """Return settings with those of ``--set KEY=VALUE``, by dotted name.

    Raises:
        ConfigError: A setting is unknown, or is given by its own option, too.
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import read_assignments

    found = TrainingConfig.flat(read_assignments(words or (), TrainingConfig))
    for key in found.keys() & given.keys():
        raise ConfigError(
            f"{key} is given twice: --set {key}={found[key]} and by its own option, "
            f"{given[key]}. Leave one out."
        )
    return given | found


def use_tool_options(command: typer.Context, given: dict[str, Any]) -> None:
    """Move the values of the options ``OF_TASKS`` into the settings ``given``.

    If the scenario is a tasks file, the setting ``scenario`` becomes a text with the
    file's path and these values. Otherwise, ``--tools`` and ``--allow-tool`` become
    settings of the user's own agent.
    """
    if "categories" in command.params:  # `agentgym gateway` has another --data
        data, categories = command.params["data"], command.params["categories"]
        if data or categories:
            given["scenario"] = with_data(given.get("scenario", ""), data, categories)
    options = {name: command.params.get(name) for name in OF_TOOLS}
    scenario = given.get("scenario", "")
    if "agent.reference" in given and not is_tasks_file(scenario):
        given |= own_tools(options.pop("tools"), options.pop("allow_tool"))
    if is_tasks_file(scenario) or any(options.values()):
        given["scenario"] = with_tools(scenario, **options)


def token_prices(
    option: str, read: float | None, written: float | None
) -> "Prices | None":
    """Return the prices of a model's tokens; None if no price is given.

    ``option`` is the beginning of the options' names, such as ``price`` of
    ``--price-in``.
    """
    from agentgym.core.prices import Prices

    if read is None and written is None:
        return None
    if read is None or written is None:
        raise UsageError(f"Give both --{option}-in and --{option}-out, or neither.")
    return Prices(prompt=read, response=written)
