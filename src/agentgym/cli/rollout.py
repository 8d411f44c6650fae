"""``agentgym rollout``: let an agent attempt tasks, and look at what came of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.output import (
    AsJson,
    UnsafeLocalExec,
    print_json,
    progress_console,
)

if TYPE_CHECKING:
    from agentgym.core.task import Task
    from agentgym.rollout.solo.batch import RolloutBatch
    from agentgym.rollout.solo.config import RolloutConfig


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("rollout")(rollout)


def rollout(
    tasks: Annotated[
        str | None,
        typer.Argument(help="A JSON Lines file of tasks, or a scenario."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="openai:NAME, anthropic:NAME, …, or http://host/v1#NAME."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="tool, react, coding, or module:Class.")
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option(
            help="calculator, bash, file_editor, search, or module:function; commas "
            "between them."
        ),
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help="module:function (task, trajectory) -> float.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts in flight.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Model calls of a rollout.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens of one response.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a rollout is dropped.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="JSON Lines file to append trajectories to.")
    ] = None,
    count: Annotated[int, typer.Option(help="Tasks of a scenario.", min=1)] = 20,
    split: Annotated[str, typer.Option(help="Of a scenario's tasks.")] = "test",
    seed: Annotated[int, typer.Option(help="Of a scenario's tasks.")] = 0,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings, tools' too.")
    ] = None,
    unsafe_local_exec: UnsafeLocalExec = False,
    show: Annotated[
        Path | None, typer.Option(help="Only show trajectories that were saved.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let an agent attempt tasks with any model; nothing is trained."""
    from agentgym.errors import Interrupted, UsageError
    from agentgym.rollout.solo.config import RolloutConfig

    if show is not None:
        if tasks is not None:
            raise UsageError("--show FILE takes no tasks: it runs nothing.")
        _show(show, as_json)
        return
    if tasks is None or model is None:
        missing = "a file of tasks or a scenario" if tasks is None else "--model"
        raise UsageError(
            f"Give {missing}: agentgym rollout TASKS.jsonl --model openai:NAME"
        )
    settings: dict[str, Any] = {
        "agent": agent,
        "concurrency": concurrency,
        "max_steps": max_steps,
        "max_tokens_per_step": max_tokens,
        "temperature": temperature,
        "timeout_s": timeout,
        "save": save,
        "unsafe_local_exec": unsafe_local_exec or None,
    }
    chosen = (
        RolloutConfig.create(**{k: v for k, v in settings.items() if v is not None})
        if config is None
        else RolloutConfig.from_yaml(config, **settings)
    )
    if tools is not None:
        chosen = chosen.replaced(tools=_with_settings(tools, chosen.tools))
    found, scored_by = _tasks(tasks, reward, split, seed, count)
    try:
        batch = _run(found, model, chosen, scored_by, as_json)
    except KeyboardInterrupt:
        kept = (
            "Nothing was saved; --save FILE keeps what has ended."
            if chosen.save is None
            else f"What had ended is in {chosen.save}."
        )
        raise Interrupted(f"Interrupted. {kept}") from None
    _report(batch, as_json)
    if batch.summary.succeeded == 0:
        raise typer.Exit(1)


def _tasks(
    source: str, reward: str | None, split: str, seed: int, count: int
) -> "tuple[list[Task], Any]":
    """Return the tasks, and what scores them: a function, a scenario's name, None."""
    from agentgym.core.task import Split
    from agentgym.errors import UsageError
    from agentgym.integrations.registry import load_factory
    from agentgym.rollout.solo.tasks import read_tasks
    from agentgym.scenarios.registry import get_scenario
    from agentgym.scenarios.task_lists import make_tasks

    function = None if reward is None else load_factory(reward, option="--reward")
    path = Path(source)
    is_pack = path.suffix == ".py" or path.is_dir()
    if not is_pack and (path.suffix or path.is_file()):
        return read_tasks(path), function
    if function is not None:
        raise UsageError(f"The scenario {source!r} has its own reward: drop --reward.")
    if split not in set(Split):
        raise UsageError(f"No split is named {split!r}; known: {', '.join(Split)}.")
    scenario = get_scenario(source)
    try:
        return make_tasks(scenario, Split(split), seed, count), source
    finally:
        scenario.close()


def _with_settings(names: str, settings: dict[str, Any] | None) -> dict[str, Any]:
    """Return the named tools with their settings of the configuration, if any."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    return {name: (settings or {}).get(name, {}) for name in chosen}


def _run(
    tasks: "list[Task]",
    model: str,
    config: "RolloutConfig",
    reward: Any,
    as_json: bool,
) -> "RolloutBatch":
    from rich.progress import Progress

    from agentgym.rollout.solo.batch import run_rollouts_sync

    console = progress_console(as_json)
    hidden = not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("rollouts", total=len(tasks))
        return run_rollouts_sync(
            tasks,
            llm=model,
            config=config,
            reward=reward,
            on_done=lambda _: progress.advance(bar),
        )


def _report(batch: "RolloutBatch", as_json: bool) -> None:
    from agentgym.ui.rollouts import summary_view

    saved = None if batch.saved is None else str(batch.saved)
    if as_json:
        print_json({**batch.summary.model_dump(mode="json"), "saved": saved})
        return
    console = progress_console(False)
    console.print(summary_view(batch.summary))
    if saved is not None:
        console.print(f"Saved in {saved}; agentgym rollout --show {saved}")


def _show(path: Path, as_json: bool) -> None:
    from agentgym.core.trajectory import summarize
    from agentgym.errors import UsageError
    from agentgym.rollout.solo.continuity import check_continuity
    from agentgym.rollout.solo.trajectory_file import scan_jsonl

    try:
        trajectories, broken = scan_jsonl(path)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from None
    summary = summarize(trajectories)
    losses = {t.rollout_id: check_continuity(t) for t in trajectories}
    found = {name: list(map(str, lost)) for name, lost in losses.items() if lost}
    if as_json:
        body = summary.model_dump(mode="json")
        print_json({**body, "context_losses": found, "broken": list(map(str, broken))})
    else:
        from agentgym.ui.rollouts import continuity_view, summary_view

        console = progress_console(False)
        console.print(summary_view(summary), continuity_view(found), sep="\n")
    for line in broken:
        typer.echo(f"{path}: {line}", err=True)
    if broken and not trajectories:
        raise typer.Exit(1)
