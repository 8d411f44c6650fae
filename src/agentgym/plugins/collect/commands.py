"""``agentgym rollout``: let an agent attempt tasks, and show the results."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import (
    AllowTool,
    AsJson,
    CacheRequests,
    CheckCommand,
    Command,
    ToolsFrom,
    named_agent,
    named_model,
    of_saved,
    option,
    takes,
    tasks_or_scenario,
    with_tools,
)
from agentgym.cli.output import print_json, progress_console, require_place
from agentgym.errors import Interrupted, UsageError
from agentgym.scenarios.packs import is_tasks_file

if TYPE_CHECKING:
    from agentgym.core.task import Task
    from agentgym.plugins.collect.batch import RolloutBatch
    from agentgym.plugins.collect.config import RolloutConfig


@takes(
    *("framework", "agent.context", "agent.inputs", "agent.on_interrupt"),
    *("agent.configurable", "unsafe_local_exec"),
)
def rollout(
    given: dict[str, Any],
    tasks: str | None = typer.Argument(
        None, help="A JSON Lines file of tasks, or a scenario."
    ),
    model: str | None = option(
        "nano, a saved agent, a folder, openai:NAME, anthropic:NAME, …, or "
        "http://host/v1#NAME."
    ),
    agent: str | None = option(
        "tool, react, coding, your own module:name, or a saved agent, which brings "
        "its model and its tasks.",
    ),
    program: Command = None,
    tasks_file: Path | None = option("Instead of TASKS: the tasks file.", "--tasks"),
    check_command: CheckCommand = None,
    tools_from: ToolsFrom = None,
    tool_names: str | None = option(
        "With expected calls, who answers: recorded, stub or live. Else the tools: "
        "calculator, bash, file_editor, search, or module:function; commas between "
        "them.",
        "--tools",
        metavar="recorded|stub|live|NAME,NAME",
    ),
    allow_tool: AllowTool = None,
    reward: str | None = option("module:function (task, trajectory) -> float."),
    concurrency: int | None = option("Rollouts in flight."),
    max_steps: int | None = option("Model calls of a rollout."),
    max_tokens_per_step: int | None = option("Tokens of one response.", "--max-tokens"),
    temperature: float | None = option("Sampling temperature."),
    cache_requests: CacheRequests = None,
    timeout_s: float | None = option(
        "Seconds after which a rollout is dropped; else 600.", "--timeout"
    ),
    save: Path | None = option(
        "JSON Lines file to append trajectories to; one that ends in .atif.json or "
        ".openai.jsonl is for other tools."
    ),
    count: int = option("Tasks of a scenario.", default=20, min=1),
    split: str = option("A scenario's split.", default="test"),
    seed: int = option("Seed of a scenario's tasks.", default=0),
    task: str | None = option("Only the task with this id, of a scenario or a file."),
    config: Path | None = option("YAML file of settings, tools' too."),
    show: Path | None = option("Only show trajectories that were saved."),
    as_json: AsJson = False,
) -> None:
    """Let an agent attempt tasks with any model; nothing is trained.

    Example: agentgym rollout coding --model nano --count 20
    """
    from agentgym.integrations.agent_import import is_reference
    from agentgym.plugins.collect.agents import get_agent, is_for_rollouts
    from agentgym.plugins.collect.config import RolloutConfig
    from agentgym.scenarios.task_lists import MOST_SEARCHED, with_id
    from agentgym.scenarios.tool_tasks.scenario import with_own_tools
    from agentgym.scenarios.tool_tasks.task_file import has_expectations
    from agentgym.train.versions import saved_names

    if show is not None:
        if tasks is not None:
            raise UsageError("--show FILE takes no tasks: it runs nothing.")
        _show(show, as_json)
        return
    tasks = tasks_or_scenario(tasks, tasks_file, may_be_texts=True)
    agent = named_agent(agent, program, may_be_saved=True, model=model)
    own = {
        "agent": agent,
        "concurrency": concurrency,
        "max_steps": max_steps,
        "max_tokens_per_step": max_tokens_per_step,
        "temperature": temperature,
        "cache_requests": cache_requests,
        "timeout_s": timeout_s,
        "save": save,
        "unsafe_local_exec": given.get("unsafe_local_exec"),
    }
    is_other = agent is not None and not is_for_rollouts(agent)
    is_saved = is_other and not is_reference(str(agent))
    if is_saved and agent is not None:
        if agent.partition("@")[0] not in saved_names() and not Path(agent).exists():
            get_agent(agent)  # raises, with the names that it knows
        tasks = tasks or of_saved(agent)
    if tasks is None or (model is None and not is_saved):
        missing = "a file of tasks or a scenario" if tasks is None else "--model"
        raise UsageError(
            f"Give {missing}: agentgym rollout {tasks or 'TASKS.jsonl'} --model nano"
        )
    chosen = RolloutConfig.create(**own)
    if config is not None:
        chosen = RolloutConfig.from_yaml(config, **own)
    is_scored = is_other or "?" in tasks or any((check_command, tools_from, allow_tool))
    if is_tasks_file(tasks) and not is_scored:
        is_scored = has_expectations(Path(tasks.partition("?")[0]))
    answers = tool_names if is_scored else None
    if tool_names is not None and answers is None:
        names = [name for each in tool_names.split(",") if (name := each.strip())]
        known = chosen.tools or {}
        chosen = chosen.replaced(tools={name: known.get(name, {}) for name in names})
    for place in filter(None, (chosen.save, chosen.cache_requests)):
        require_place(place)
    if is_scored:
        tasks = with_tools(
            tasks, tools_from, answers, allow_tool, check_command=check_command
        )
    if is_other:
        if reward is not None or chosen.max_steps != RolloutConfig().max_steps:
            raise UsageError(
                f"{agent} runs in its own loop, and its tasks have their own reward: "
                "leave --reward and --max-steps out."
            )
        source = {"scenario": tasks, "model": None if is_saved else model, "seed": seed}
        measured = "all" if is_tasks_file(tasks) else split
        asked = {"split": measured, "tasks": count, "task": task}
        batch = _of_own_agent({**given, **source}, chosen, as_json, asked)
        _report(batch, as_json)
        raise typer.Exit(int(batch.summary.succeeded == 0))
    if is_scored and agent is not None and ":" in agent:
        tasks = with_own_tools(tasks, agent)
    if task is not None:
        count = max(count, MOST_SEARCHED)
    found, scored_by = _tasks(tasks, reward, split, seed, count, is_scored=is_scored)
    if task is not None:
        found = [with_id(found, task)]
    try:
        batch = _run(found, str(model), chosen, scored_by, as_json)
    except KeyboardInterrupt:
        kept = "Nothing was saved; --save FILE keeps the rollouts that have ended."
        if chosen.save is not None:
            kept = f"The rollouts that had ended are in {chosen.save}."
        raise Interrupted(f"Interrupted. {kept}") from None
    _report(batch, as_json)
    if batch.summary.succeeded == 0:
        raise typer.Exit(1)


def _tasks(
    source: str,
    reward: str | None,
    split: str,
    seed: int,
    count: int,
    *,
    is_scored: bool,
) -> "tuple[list[Task], Any]":
    """Return the tasks of a file or a scenario, and the source of their rewards.

    That is a reward function, the name of the scenario, or None without rewards. If
    `is_scored`, `source` is a tasks file with expected calls or a check: it is used as
    a scenario, with the tasks of all splits.
    """
    from agentgym.core.task import EVERY_SPLIT, Split
    from agentgym.integrations.registry import load_factory
    from agentgym.plugins.collect.batch import read_tasks
    from agentgym.scenarios.registry import get_scenario
    from agentgym.scenarios.task_lists import tasks_to_measure

    function = None if reward is None else load_factory(reward, option="--reward")
    path = Path(source)
    is_pack = path.suffix == ".py" or path.is_dir() or is_scored
    if not is_pack and (path.suffix or path.is_file()):
        return read_tasks(path), function
    if function is not None:
        raise UsageError(f"The scenario {source!r} has its own reward: drop --reward.")
    if split not in set(Split):
        raise UsageError(f"No split is named {split!r}; known: {', '.join(Split)}.")
    measured = EVERY_SPLIT if is_scored else split
    with closing(get_scenario(source)) as scenario:
        return tasks_to_measure(scenario, measured, seed, count), source


def _of_own_agent(
    source: dict[str, Any],
    config: "RolloutConfig",
    as_json: bool,
    asked: dict[str, Any],
) -> "RolloutBatch":
    """Let a framework's agent, or a saved one, attempt each task of a scenario once.

    ``source`` has the settings of the agent and its tasks, ``asked`` says which tasks.
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.core.trajectory import Trajectory
    from agentgym.plugins.collect.batch import RolloutBatch
    from agentgym.rollout.trajectory_file import TrajectoryWriter
    from agentgym.train.trainer import Trainer
    from agentgym.ui.terminal_progress import TerminalProgress

    settings = TrainingConfig.create(
        **source,
        concurrency=config.concurrency,
        eval_temperature=config.temperature,
        max_tokens=config.max_tokens_per_step,
    )
    with TerminalProgress(progress_console(as_json)) as progress:
        made: list[Trajectory] = []
        Trainer(settings, progress=progress).evaluate(
            agent=config.agent,
            samples=1,
            baselines=False,
            keep=made,
            cache_requests=config.cache_requests,
            **asked,
        )
    if config.save is not None:
        with TrajectoryWriter(config.save) as writer:
            for trajectory in made:
                writer.write(trajectory)
    return RolloutBatch(made, config.save)


def _run(
    tasks: "list[Task]", model: str, config: "RolloutConfig", reward: Any, as_json: bool
) -> "RolloutBatch":
    from rich.progress import Progress

    from agentgym.plugins.collect.batch import run_rollouts_sync

    console = progress_console(as_json)
    hidden = not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("rollouts", total=len(tasks))
        return run_rollouts_sync(
            tasks,
            llm=named_model(model),
            config=config,
            reward=reward,
            on_done=lambda _: progress.advance(bar),
        )


def _report(batch: "RolloutBatch", as_json: bool) -> None:
    from agentgym.rollout.trajectory_file import OWN_FORMAT, form_of
    from agentgym.ui.cards import summary_view

    if as_json:
        more = {"saved": batch.saved, "cached": batch.cached}
        print_json({**batch.summary.model_dump(mode="json"), **more})
        return
    console = progress_console()
    console.print(summary_view(batch.summary))
    if batch.cached is not None:
        console.print(batch.cached)
    if batch.saved is not None:
        shown = f"; agentgym rollout --show {batch.saved}"
        is_own = form_of(batch.saved) == OWN_FORMAT
        console.print(f"Saved in {batch.saved}{shown * is_own}")


def _show(path: Path, as_json: bool) -> None:
    from agentgym.plugins.collect.continuity import check_continuity
    from agentgym.rollout.summary import summarize
    from agentgym.rollout.trajectory_file import OWN_FORMAT, form_of, scan_jsonl

    if (form := form_of(path)) != OWN_FORMAT:
        raise UsageError(
            f"{path} is named as a file for other tools, in the format {form}. --show "
            "reads the files that --save writes to other names, as out.jsonl."
        )
    try:
        trajectories, broken = scan_jsonl(path)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from None
    if not trajectories:
        why = broken[0] if broken else "it is empty"
        raise UsageError(f"{path} has no rollout ({why}); --save FILE writes them.")
    summary = summarize(trajectories)
    losses = {t.rollout_id: check_continuity(t) for t in trajectories}
    found = {name: list(map(str, lost)) for name, lost in losses.items() if lost}
    if as_json:
        body = summary.model_dump(mode="json")
        print_json({**body, "context_losses": found, "broken": broken})
    else:
        from agentgym.ui.cards import continuity_view, summary_view

        views = summary_view(summary), continuity_view(found)
        progress_console().print(*views, sep="\n")
    for line in broken:
        typer.echo(f"{path}: {line}", err=True)
