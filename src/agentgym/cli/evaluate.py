"""``agentgym eval``: measure an agent without training it, or compare two."""

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
    from agentgym.cli.subjects import Subject
    from agentgym.core.config import TrainingConfig
    from agentgym.evaluate.progress import Progress
    from agentgym.evaluate.result import Evaluation


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
        typer.Option(
            help="A model instead: nano, a folder, an id, PROVIDER:MODEL (e.g. "
            "openai:gpt-4.1-mini), or an address, http://host:8000/v1#MODEL."
        ),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="Measure two on the same tasks: agents, models, or saved evaluations.",
            metavar="A B",
        ),
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="Whose agent loop: langchain or native.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="auto, local or none.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="test, validation or out_of_vocabulary.", show_default="test"
        ),
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="How many tasks.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Attempts per task, the k of pass^k.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of tasks and sampling.")] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(help="Episodes in flight per worker; 8 for a provider's model."),
    ] = None,
    price_in: Annotated[
        float | None, typer.Option(help="$ per million prompt tokens.", min=0.0)
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(help="$ per million sampled tokens.", min=0.0)
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Measure a do-nothing and a call-everything agent beside it.",
        ),
    ] = True,
    unsafe_local_exec: UnsafeLocalExec = False,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if tool reliability (0.95) or another share "
            "(pass_1=0.9) is lower. With --compare, of B. Can be given again."
        ),
    ] = None,
    fail_under_low: Annotated[
        list[str] | None,
        typer.Option(help="The same for the lower end of the interval."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the evaluation to a file for --compare.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a Markdown report.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure an agent on held-out tasks, or compare two; no training."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.task import Split
    from agentgym.errors import UsageError
    from agentgym.evaluate.compare import Gate
    from agentgym.evaluate.metrics import Prices

    if split is not None and split not in set(Split):
        raise UsageError(f"No split is named {split!r}; known: {', '.join(Split)}.")
    if agent is not None and model is not None:
        raise UsageError("Give --agent or --model, not both: which is to be measured?")
    if compare is not None and (agent, model, save) != (None, None, None):
        raise UsageError("--compare names both sides; leave out the other options.")
    if (price_in is None) != (price_out is None):
        raise UsageError("Give both --price-in and --price-out, or neither.")
    prices = None
    if price_in is not None and price_out is not None:
        prices = Prices(prompt=price_in, response=price_out)
    for path in (save, markdown):
        if path is not None:
            _require_place(path)
    gates = [Gate.parse(text) for text in fail_under or []]
    gates += [Gate.parse(text, by_low=True) for text in fail_under_low or []]
    settings = TrainingConfig.create(
        scenario=scenario,
        framework=framework,
        model=model,
        gpu=gpu,
        seed=seed,
        concurrency=concurrency,
        unsafe_local_exec=unsafe_local_exec or None,
    )
    given: dict[str, Any] = {
        "split": split or Split.TEST.value,
        "tasks": tasks,
        "samples": samples,
        "prices": prices,
        "baselines": baselines,
    }
    if compare is None:
        found = _measure(settings, {"agent": agent, **given}, markdown, save, as_json)
    else:
        found = _compare(compare, settings, given, markdown, as_json)
    missing = [line for gate in gates if (line := gate.miss(found.metrics))]
    for line in missing:
        typer.echo(line, err=True)
    if missing:
        raise typer.Exit(1)


def _measure(
    settings: "TrainingConfig",
    given: dict[str, Any],
    markdown: Path | None,
    save: Path | None,
    as_json: bool,
) -> "Evaluation":
    """Measure one, and show and write what came out."""
    from agentgym.train.trainer import Trainer
    from agentgym.ui.evaluation import evaluation_view
    from agentgym.ui.evaluation_report import render_evaluation
    from agentgym.ui.live import TerminalProgress

    console = progress_console(as_json)
    with TerminalProgress(console) as progress:
        found = Trainer(settings, progress=progress).evaluate(**given)
    console.print(evaluation_view(found, console.width))
    if as_json:
        print_json(found.model_dump(mode="json"))
    if save is not None:
        found.save(save)
    if markdown is not None:
        _write(markdown, render_evaluation(found))
    return found


def _compare(
    names: tuple[str, str],
    settings: "TrainingConfig",
    given: dict[str, Any],
    markdown: Path | None,
    as_json: bool,
) -> "Evaluation":
    """Measure what is not yet measured, compare, and return the second side."""
    from agentgym.cli.subjects import find_subject
    from agentgym.errors import UsageError
    from agentgym.evaluate.compare import compare
    from agentgym.ui.evaluation import comparison_of_two
    from agentgym.ui.evaluation_report import render_comparison
    from agentgym.ui.live import TerminalProgress

    first, second = (find_subject(name) for name in names)
    for saved in (first.evaluation, second.evaluation):
        if saved is not None:  # the other side is measured just like it
            settings = settings.replaced(seed=saved.seed)
            given["split"], given["samples"] = saved.split, saved.samples
            given["tasks"] = len(saved.metrics.by_task)
    console = progress_console(as_json)
    with TerminalProgress(console) as progress:
        before = _side(first, settings, given, progress)
        after = _side(second, settings, given, progress)
    for side in (before, after):
        if side.scenario != settings.scenario_name:
            raise UsageError(
                f"{side.subject} was measured on {side.scenario!r}, not on "
                f"{settings.scenario_name!r}."
            )
    found = compare(before.metrics, after.metrics)
    console.print(comparison_of_two(before, after, found, console.width))
    if as_json:
        print_json(
            {
                "before": before.model_dump(mode="json"),
                "after": after.model_dump(mode="json"),
                "comparison": found.model_dump(mode="json"),
            }
        )
    if markdown is not None:
        _write(markdown, render_comparison(before, after, found))
    return after


def _side(
    subject: "Subject",
    settings: "TrainingConfig",
    given: dict[str, Any],
    progress: "Progress",
) -> "Evaluation":
    from agentgym.train.trainer import Trainer

    if subject.evaluation is not None:
        return subject.evaluation
    config = settings.replaced(model=subject.model)
    given = {**given, "agent": subject.agent, "baselines": False}
    return Trainer(config, progress=progress).evaluate(**given)


def _require_place(path: Path) -> None:
    """Check that a file can be written, before anything is measured.

    Raises:
        UsageError: It cannot; says why.
    """
    from agentgym.errors import UsageError

    if path.is_dir():
        problem = "it is a folder"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"the folder {path.parent} is not writable"
    else:
        return
    raise UsageError(f"{path} cannot be written: {problem}. Choose another place.")


def _write(path: Path, text: str) -> None:
    from agentgym.core.files import write_atomically
    from agentgym.errors import UsageError

    try:
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
