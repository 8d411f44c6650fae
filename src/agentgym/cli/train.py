"""``agentgym train``: train an agent on a scenario."""

import os
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
    from rich.console import Console

    from agentgym.core.config import TrainingConfig
    from agentgym.train.result import TrainingResult


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(train)


def train(
    scenario: Annotated[
        str | None,
        typer.Argument(help="What to train on; see `agentgym scenarios list`."),
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="Whose agent: langchain or native.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(help="module:name of your make_agent(llm, tools)."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="nano, a folder, or a Hugging Face id.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local or verl.")] = None,
    gpu: Annotated[
        str | None, typer.Option(help="auto, local, runpod, lambda or none.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Most training rollouts.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="rloo or grpo.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of tasks, sampling and initialisation.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Same seed, same weights; slower.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings; options win over it.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="Continue this run: its folder or its name.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the run and its agent.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of runs; ./runs by default.")
    ] = None,
    tracker: Annotated[
        str | None, typer.Option(help="tensorboard, wandb or none.")
    ] = None,
    unsafe_local_exec: UnsafeLocalExec = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, train nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train an agent's model until its tool calls are reliable.

    Shows the plan, a baseline on held-out tasks, live progress, and the same tasks
    after training. Ctrl-C ends the run cleanly; --resume continues it.
    """
    from agentgym.errors import UsageError

    given = {
        "scenario": scenario,
        "framework": framework,
        "agent": agent,
        "model": model,
        "engine": engine,
        "gpu": gpu,
        "episodes": episodes,
        "algorithm": algorithm,
        "seed": seed,
        "deterministic": deterministic or None,
        "name": name,
        "output": output,
        "tracker": tracker,
        "unsafe_local_exec": unsafe_local_exec or None,
    }
    console = progress_console(as_json)
    if resume is not None:
        if config is not None or dry_run:
            raise UsageError(
                "--resume continues a run with its own settings; leave --config and "
                "--dry-run out."
            )
        result = _resume(resume, given, console)
    else:
        settings = _settings(config, given)
        if dry_run:
            _show_plan(settings, console, as_json)
            return
        result = _train(settings, console)
    _show_result(result, console, as_json)


def _settings(config: Path | None, given: dict[str, Any]) -> "TrainingConfig":
    """Return the settings of a new run; options win over the file."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import variable_of
    from agentgym.errors import UsageError
    from agentgym.scenarios.registry import scenario_names

    if config is not None:
        return TrainingConfig.from_yaml(config, **given)
    if given["scenario"] is None and variable_of("scenario") not in os.environ:
        raise UsageError(
            "Which scenario? Name one, as in `agentgym train coding`, or give "
            f"--config or --resume. Available: {', '.join(scenario_names())}."
        )
    return TrainingConfig.create(**given)


def _train(settings: "TrainingConfig", console: "Console") -> "TrainingResult":
    from agentgym.train.trainer import Trainer
    from agentgym.ui.live import TerminalProgress

    with TerminalProgress(console) as progress:
        return Trainer(settings, progress=progress).train()


def _resume(run: str, given: dict[str, Any], console: "Console") -> "TrainingResult":
    """Continue ``run``; only its place and its budget can be given."""
    from agentgym.core.config import TrainingConfig
    from agentgym.errors import UsageError
    from agentgym.train.trainer import Trainer
    from agentgym.ui.live import TerminalProgress

    output, episodes = given.pop("output"), given.pop("episodes")
    refused = [key for key, value in given.items() if value is not None]
    if refused:
        raise UsageError(
            "--resume continues a run with its own settings; leave out: "
            f"{', '.join(refused)}. Only --episodes may change."
        )
    settings = TrainingConfig.create(output=output)
    with TerminalProgress(console) as progress:
        trainer = Trainer(settings, progress=progress)
        return trainer.train(resume=run, episodes=episodes)


def _show_plan(settings: "TrainingConfig", console: "Console", as_json: bool) -> None:
    from dataclasses import asdict

    from agentgym.train.trainer import Trainer
    from agentgym.ui.tables import plan_view

    plan = Trainer(settings).plan()
    if as_json:
        config = settings.model_dump(mode="json")
        print_json({**asdict(plan), "config": config, "run": str(plan.run)})
    else:
        console.print(plan_view(plan))
        console.print("Nothing was started: this was a dry run.", style="dim")


def _show_result(result: "TrainingResult", console: "Console", as_json: bool) -> None:
    """Print the result and write it as ``report.md`` into the run folder."""
    from agentgym.core.files import write_atomically
    from agentgym.ui.report import render_report
    from agentgym.ui.tables import result_view

    write_atomically(result.artifacts.run / "report.md", render_report(result))
    console.print(result_view(result, console.width))
    if as_json:
        print_json(result.model_dump(mode="json"))
