"""``agentgym runs``, ``agents``, ``export``, ``serve``: use results."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentgym.cli import listing
from agentgym.cli.options import AsJson, Host, Port, Runs, flag, opt, option
from agentgym.cli.output import (
    failures_shown,
    print_json,
    print_result,
    progress_console,
    require_place,
)
from agentgym.errors import Interrupted, NotFoundError, UsageError
from agentgym.plugins import registered
from agentgym.train.status import bill, machine_of, run_status

_KEY = "AGENTGYM_API_KEY"

agents = typer.Typer(
    name="agents", help="Trained agents: list, show, use.", no_args_is_help=True
)
runs = typer.Typer(
    name="runs", help="Runs on disk: list, show, export, audit.", no_args_is_help=True
)


@agents.command("list")
def list_agents(as_json: AsJson = False) -> None:
    """List all versions of the agents that are saved in AGENTGYM_HOME."""
    print_result(listing.agents(as_json=as_json))


@agents.command()
def show(
    name: Annotated[str, typer.Argument(help="NAME, NAME@N or a folder.")],
    as_json: AsJson = False,
) -> None:
    """Show an agent: its origin, its tools and its metrics."""
    from agentgym.train.trained_agent import TrainedAgent

    agent = TrainedAgent.load(name)
    if as_json:
        card = agent.model_dump(mode="json")
        print_json({"name": agent.name, "default": agent.is_default, **card})
    else:
        from agentgym.ui.cards import agent_view

        progress_console().print(agent_view(agent))


@agents.command()
def use(
    name: Annotated[str, typer.Argument(help="NAME@N: a version of a saved agent.")],
    auto: bool = flag("Let better runs of NAME become its default again.", "--auto"),
) -> None:
    """Choose an agent's default version, which is used for NAME without @N.

    Later runs do not change this choice. With --auto, a better run's version becomes
    the default again.
    """
    from agentgym.train.trained_agent import TrainedAgent
    from agentgym.train.versions import Versions, find

    if auto:
        with Versions(find(name).name).locked() as versions:
            versions.unpin()
        said = f"A better run of {versions.name} becomes its default again"
        progress_console().print(f"{said}; now it is {versions.default() or 'none'}.")
        return
    agent = TrainedAgent.load(name)
    alone, at, _ = name.partition("@")
    if agent.version is None or not at:
        example = agent.name if agent.version else "coding@2"
        raise UsageError(
            f"{name!r} does not say which version: name one, as in `agentgym agents "
            f"use {example}`. `agentgym agents list` shows them all."
        )
    before = agent.make_default()
    said = f"{alone} means {agent.name} from now on, whatever later runs reach"
    if before == agent.name:
        said = f"{alone} means {agent.name} already"
    elif before is not None:
        said += f"; until now it meant {before}"
    progress_console().print(f"{said}.")


def export(
    name: Annotated[
        str, typer.Argument(help="NAME, NAME@N, a folder, or a Hugging Face id.")
    ],
    output: Annotated[Path, opt("Folder to write; it must not exist yet.")],
    form: str = option(
        "hf: as it was trained; merged: adapters merged.", "--format", default="merged"
    ),
) -> None:
    """Write an agent's weights as a folder for transformers, peft, vLLM.

    An agent that was trained with LoRA is an adapter, which needs its base model.
    --format merged writes one model that contains both.

    Example: agentgym export coding --output model
    """
    from agentgym.train.trained_agent import TrainedAgent

    agent = TrainedAgent.load(name)
    folder = agent.export(output, form)
    progress_console().print(f"{agent.name} is in {folder}", soft_wrap=True)


@runs.command("list")
def list_runs(output: Runs = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs with their status and results."""
    print_result(listing.runs(output, as_json=as_json))


@runs.command("export")
def export_run(
    run: Annotated[str, typer.Argument(help="Its folder or its name.")],
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    form: str = option(
        "atif: Agent Trajectory Interchange Format; openai: chat messages; inspect: a "
        "log of inspect_ai; jsonl: for agentgym rollout --show.",
        "--format",
        default="atif",
        metavar="atif|openai|inspect|jsonl",
    ),
    only: str = option(
        "Rollouts whose id has this part: after, s00012, …", default="", metavar="TEXT"
    ),
    output: Runs = Path("runs"),
) -> None:
    """Write a run's ended rollouts to a file for other tools."""
    from agentgym.core.registry import loaders
    from agentgym.rollout.record import stored_trajectories
    from agentgym.rollout.session import DATABASE_FILE
    from agentgym.rollout.store.reader import StoreReader
    from agentgym.rollout.trajectory_file import TrajectoryWriter, formats
    from agentgym.train.run_folder import RunFolder

    folder = RunFolder.open(run, output)
    whole = loaders("agentgym.exports")
    if form not in (known := [*formats(), *whole]):
        raise NotFoundError("format", form, known)
    if file.exists():
        raise UsageError(f"{file} exists: give another file.")
    found = stored_trajectories(StoreReader(folder.path / DATABASE_FILE), only)
    first = next(found, None)
    if first is None:
        named = f" whose id has {only!r}" if only else ""
        raise UsageError(f"{folder.path} has no ended rollout{named}.")
    every, count = chain((first,), found), 0
    if form in whole:
        count = whole[form]()(file, every)
    else:
        with TrajectoryWriter(file, form) as writer:
            for trajectory in every:
                writer.write(trajectory)
                count += 1
    progress_console().print(f"{count:,} rollouts are in {file}", soft_wrap=True)


@runs.command("show")
def show_run(
    run: Annotated[str, typer.Argument(help="Its folder or its name.")],
    html: Path | None = option(
        "Write the run's report as one HTML file, with its curves."
    ),
    output: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show a run: its settings, its steps, and its result once there is one."""
    from agentgym.evaluate.shown import ShownResult
    from agentgym.train.run_folder import RunFolder, read_result

    folder = RunFolder.open(run, output)
    record = folder.record()
    record["status"] = run_status(folder.path, record)
    if html is not None:
        from agentgym.evaluate.result import write_text

        require_place(html)
        page = registered("agentgym.reports", "html")(folder, record["status"])
        write_text(html, page)
        progress_console(as_json).print(f"The report is {html}", soft_wrap=True)
    if as_json:
        machine, plain = machine_of(folder.path), read_result(folder.path, dict)
        more = {"steps": folder.metrics(), "machine": machine, "result": plain}
        print_json({**record, **more})
    else:
        from agentgym.ui.run import run_view

        result = read_result(folder.path, lambda data: ShownResult.read(data["shown"]))
        cost = bill(folder.path)
        progress_console().print(run_view(folder, record["status"], result, cost))


@runs.command("audit")
def show_audit(
    run: str | None = typer.Argument(
        None,
        help="Its folder or name, or the folder of a gateway; without one, "
        "the commands outside of runs.",
        show_default=False,
    ),
    rollout: str | None = option("Only entries of this rollout."),
    what: str | None = option(
        "Only this: executed, tool, gateway, refused key, machine, began."
    ),
    last: int = option("How many entries, the newest; 0 for all.", default=50),
    output: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show the commands that a run or gateway executed, and the caller of each.

    Without RUN, shows those of `eval`, `rollout`, `job` and `scenarios check`.
    """
    from agentgym.security import audit
    from agentgym.train.run_folder import list_runs
    from agentgym.ui.audit import audit_lines

    if last < 0:
        raise UsageError(f"--last {last} is not a number of entries: give 0 for all.")
    path = audit.default_log()
    if run is not None:
        found = [path for path in (Path(run), output / run) if path.is_dir()]
        if not found:
            names = [folder.path.name for folder in list_runs(output)]
            raise NotFoundError("run", run, names)
        path = found[0]
    kept = {"rollout": rollout, "what": what}
    wanted = {name: value for name, value in kept.items() if value is not None}
    entries = [e for e in audit.read(path) if wanted.items() <= e.items()][-last:]
    if as_json:
        print_json(entries)
    elif entries:
        print_result("".join(f"{line}\n" for line in audit_lines(entries)))
    else:
        progress_console().print(f"No such entries in {path}.", soft_wrap=True)


def serve(
    name: Annotated[
        str, typer.Argument(help="NAME, NAME@N, a folder, or a Hugging Face id.")
    ],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: str | None = option("Key that requests must have.", envvar=_KEY),
    constrain: Literal["auto", "none", "calls"] | None = option(
        "calls: restrict tool calls to the tools' schemas; auto: as in training."
    ),
) -> None:
    """Answer OpenAI's chat completions with a trained agent.

    Streaming and tool calls work as with OpenAI. After Ctrl-C, answers that have begun
    are finished; a second Ctrl-C cuts them off.

    Example: agentgym serve coding --port 8000
    """
    from agentgym.serving.server import AgentServer
    from agentgym.train.interrupts import InterruptFlag
    from agentgym.train.trained_agent import TrainedAgent

    agent = TrainedAgent.load(name, constrain=constrain or "auto")
    console = progress_console()
    console.print(f"Loading {agent.name}.")
    options = {"host": host, "port": port, "api_key": api_key}
    with (
        failures_shown(),
        AgentServer.of(agent, agent.name, **options) as server,
        InterruptFlag() as stop,
    ):
        key = "the key that you gave" if api_key else "any text, as none is asked for"
        console.print(f"Serving {agent.name}, until Ctrl-C:\n")
        console.print(f"  base URL  {server.url}", soft_wrap=True)
        console.print(f"  model     {server.models[0]}", soft_wrap=True)
        console.print(f"  API key   {key}")
        stop.wait()
        console.print("\nEnding: answers under way are finished first.")
    raise Interrupted(f"{agent.name} is no longer served.")
