"""``agentgym eval``: measure an agent without training it."""

from typing import Annotated

import typer

from agentgym.cli.output import print_json, progress_console


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("eval")(evaluate)


def evaluate(
    scenario: Annotated[str, typer.Argument(help="What to measure on.")],
    agent: Annotated[
        str | None, typer.Option(help="A trained agent: its name or its folder.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="An untrained model instead: nano, a folder, or an id."),
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="Whose agent loop: langchain or native.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="auto, local or none.")] = None,
    split: Annotated[
        str, typer.Option(help="test, validation or out_of_vocabulary.")
    ] = "test",
    tasks: Annotated[int | None, typer.Option(help="How many tasks.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Attempts per task, the k of pass^k.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of tasks and sampling.")] = None,
    unsafe_local_exec: Annotated[
        bool,
        typer.Option(
            "--unsafe-local-exec", help="Run model-written code without a sandbox."
        ),
    ] = False,
    fail_under: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 if tool reliability is below this share, e.g. 0.95.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the metrics as JSON on stdout.")
    ] = False,
) -> None:
    """Measure an agent on held-out tasks: the same metrics, no training."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.task import Split
    from agentgym.core.trainer import Trainer
    from agentgym.errors import UsageError
    from agentgym.ui.live import TerminalProgress
    from agentgym.ui.tables import metrics_view
    from agentgym.ui.words import percent

    if split not in set(Split):
        raise UsageError(f"No split is named {split!r}; known: {', '.join(Split)}.")
    if agent is not None and model is not None:
        raise UsageError("Give --agent or --model, not both: which is to be measured?")
    settings = TrainingConfig.create(
        scenario=scenario,
        framework=framework,
        model=model,
        gpu=gpu,
        seed=seed,
        unsafe_local_exec=unsafe_local_exec or None,
    )
    console = progress_console(as_json)
    with TerminalProgress(console) as progress:
        metrics = Trainer(settings, progress=progress).evaluate(
            agent=agent, split=split, tasks=tasks, samples=samples
        )
    what = agent or settings.model
    console.print(metrics_view(f"{what} on {scenario}, {split} split", metrics))
    if as_json:
        print_json(metrics.model_dump(mode="json"))
    reached = metrics.tool_reliability.value
    if fail_under is not None and reached < fail_under:
        typer.echo(
            f"Tool reliability {percent(reached)} is below {percent(fail_under)}.",
            err=True,
        )
        raise typer.Exit(1)
