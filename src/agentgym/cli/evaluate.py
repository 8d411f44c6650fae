"""``agentgym eval``: measure an agent without training it, or compare two."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import (
    OF_TASKS,
    AsJson,
    Assigned,
    CacheRequests,
    Command,
    named_agent,
    named_model,
    of_saved,
    option,
    takes,
    tasks_or_scenario,
    token_prices,
    use_tool_options,
    with_assigned,
)
from agentgym.cli.output import print_json, progress_console, require_place
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agentgym.core.config import TrainingConfig
    from agentgym.evaluate.events import Observer
    from agentgym.evaluate.result import Evaluation
    from agentgym.train.trained_agent import TrainedAgent


@takes(
    *("framework", "agent.context", "agent.inputs", "agent.on_interrupt"),
    *("agent.configurable", "gpu", "seed", "concurrency", "eval_temperature"),
    *("unsafe_local_exec", "judge.model", "judge.rubric"),
    *("judge.price_in", "judge.price_out", "judge.max_cost", "faults.rates"),
    *("user.model",),
    flags={"eval_temperature": "--temperature"},
    more=OF_TASKS,
)
def evaluate(
    command: typer.Context,
    given: dict[str, Any],
    scenario: str | None = typer.Argument(
        None,
        help="What to measure on: a scenario or a tasks file; a saved agent's own by "
        "default.",
        show_default=False,
    ),
    trained: str | None = option(
        "A trained agent: NAME, NAME@N or its folder; or module:name of your own, "
        "on the model of --model.",
        "--agent",
    ),
    program: Command = None,
    model: str | None = option(
        "A model instead: nano, a folder, an id, PROVIDER:MODEL (e.g. "
        "openai:gpt-4.1-mini), or an address, http://host:8000/v1#MODEL; several "
        "with commas between them share the load."
    ),
    compare: tuple[str, str] | None = option(
        "Measure two on the same tasks: agents, models, or saved evaluations.",
        metavar="A B",
    ),
    split: str | None = option(
        "test, validation, out_of_vocabulary, or all.", show_default="test"
    ),
    tasks: str | None = option(
        "A tasks file instead of SCENARIO; or how many tasks.", metavar="FILE|N"
    ),
    count: int | None = option("How many tasks.", metavar="N", min=1),
    task: str | None = option("Only the task with this id."),
    samples: int | None = option("Attempts per task, the k of pass^k."),
    cache_requests: CacheRequests = None,
    price_in: float | None = option("$ per million prompt tokens.", min=0.0),
    price_out: float | None = option("$ per million sampled tokens.", min=0.0),
    baselines: bool = option(
        "Also measure a do-nothing and a call-everything agent.",
        "--baselines/--no-baselines",
        default=True,
    ),
    assigned: Assigned = None,
    fail_under: list[str] | None = option(
        "Exit with 1 if tool reliability (0.95) or another share (pass_1=0.9) is "
        "lower. With --compare, of B. Can be given again."
    ),
    fail_under_low: list[str] | None = option(
        "The same for the lower end of the interval."
    ),
    save: Path | None = option("Write the evaluation to a file for --compare."),
    markdown: Path | None = option("Write a Markdown report."),
    html: Path | None = option(
        "Write the report as one HTML file, which needs no other."
    ),
    as_json: AsJson = False,
) -> None:
    """Measure an agent on held-out tasks, or compare two; no training.

    Example: agentgym eval --agent coding
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.evaluate.criteria import Gate
    from agentgym.evaluate.result import Evaluation, write_text
    from agentgym.integrations.agent_import import is_reference
    from agentgym.train.trainer import Trainer
    from agentgym.ui.reports import html_page
    from agentgym.ui.terminal_progress import TerminalProgress

    trained = named_agent(trained, program, may_be_saved=True, model=model)
    own = trained if trained is not None and is_reference(trained) else None
    trained = None if own else trained
    if trained is not None and model is not None:
        raise UsageError(
            f"{trained} is a trained agent, and has its model: leave out --model. An "
            "agent of your own, --agent module:name, is measured on any."
        )
    if trained is not None and "eval_temperature" in given:
        raise UsageError(
            f"{trained} is measured at the temperature that it was trained for: leave "
            "out --temperature."
        )
    if compare is not None and (trained, model, save, task) != (None,) * 4:
        raise UsageError("--compare names both sides; leave out the other options.")
    prices = token_prices("price", price_in, price_out)
    for path in filter(None, (save, markdown, html, cache_requests)):
        require_place(path)
    gates = [Gate.parse(text) for text in fail_under or []]
    gates += [Gate.parse(text, by_low=True) for text in fail_under_low or []]
    chosen = with_assigned(given, assigned)
    chosen |= {} if model is None else {"model": model}
    if tasks is not None and tasks.isdecimal():
        count, tasks = int(tasks), None
    source = tasks_or_scenario(scenario, None if tasks is None else Path(tasks))
    source = source or of_saved(trained)
    if source is None and compare is not None:  # of the saved evaluations
        named = map(_subject, compare)
        saved = next((side for side in named if isinstance(side, Evaluation)), None)
        source = None if saved is None else str(saved.settings["scenario"])
    if source is None:
        raise UsageError(
            "What to measure on? Name a scenario, as in `agentgym eval coding`, or "
            "give --tasks FILE. `agentgym scenarios list` shows the scenarios."
        )
    chosen["scenario"] = source
    if own is not None:
        chosen["agent.reference"] = own
    use_tool_options(command, chosen)
    settings = TrainingConfig.create(**chosen)
    asked: dict[str, Any] = {"split": split or "test", "prices": prices}
    asked |= {"tasks": count, "samples": samples, "cache_requests": cache_requests}
    console = progress_console(as_json)
    with TerminalProgress(console) as progress:
        if compare is None:
            trainer = Trainer(settings, progress=progress)
            asked["task"] = task
            sides = [trainer.evaluate(agent=trained, baselines=baselines, **asked)]
        else:
            sides = _both(compare, settings, asked, progress)
    view, report, body = _views(*sides)
    console.print(view)
    if as_json:
        print_json(body)
    if save is not None:
        sides[-1].save(save)
    if markdown is not None:
        write_text(markdown, report)
    if html is not None:
        write_text(html, html_page(report))
    missing = [line for gate in gates if (line := gate.miss(sides[-1].metrics))]
    for line in missing:
        typer.echo(line, err=True)
    if missing:
        raise typer.Exit(1)


def _views(
    found: "Evaluation", after: "Evaluation | None" = None
) -> "tuple[RenderableType, str, Any]":
    """Return an evaluation in three forms: for the terminal, as Markdown, for JSON.

    If ``after`` is given, return the comparison of both evaluations instead.
    """
    from agentgym.evaluate.compare import compare
    from agentgym.ui.evaluation import comparison_of_two, evaluation_view
    from agentgym.ui.reports import render_comparison, render_evaluation

    if after is None:
        return evaluation_view(found), render_evaluation(found), found
    compared = compare(found.metrics, after.metrics)
    return (
        comparison_of_two(found, after, compared),
        render_comparison(found, after, compared),
        {"before": found, "after": after, "comparison": compared},
    )


def _both(
    names: tuple[str, str],
    settings: "TrainingConfig",
    asked: dict[str, Any],
    progress: "Observer",
) -> "list[Evaluation]":
    """Return the evaluations of two subjects on the same tasks.

    A subject is an agent, a model or a saved evaluation. If one is a saved evaluation,
    only the other is evaluated. The saved seed, split, number of tasks and number of
    samples then replace those in ``settings`` and ``asked``.
    """
    from agentgym.evaluate.result import Evaluation
    from agentgym.train.trainer import Trainer

    subjects = [_subject(name) for name in names]
    for saved in subjects:
        if isinstance(saved, Evaluation):
            settings = settings.replaced(seed=saved.seed)
            asked["split"], asked["samples"] = saved.split, saved.samples
            asked["tasks"] = len(saved.metrics.by_task)
    sides = []
    for subject in subjects:
        if isinstance(subject, Evaluation):
            side = subject
        else:
            model = subject if isinstance(subject, str) else None
            agent = None if model else subject
            trainer = Trainer(settings.replaced(model=model), progress=progress)
            side = trainer.evaluate(agent=agent, baselines=False, **asked)
        if side.scenario != settings.scenario_name:
            raise UsageError(
                f"{side.subject} was measured on {side.scenario!r}, not on "
                f"{settings.scenario_name!r}."
            )
        sides.append(side)
    if len({side.task_digest for side in sides if side.task_digest}) > 1:
        raise UsageError(
            "These two were not measured on the same tasks: the tasks have the same "
            "ids, but changed in between. Measure the saved side again."
        )
    return sides


def _subject(name: str) -> "Evaluation | TrainedAgent | str":
    """Load a saved evaluation or agent; if ``name`` names a model, return ``name``."""
    from agentgym.evaluate.result import Evaluation
    from agentgym.models.reference import is_remote

    path = Path(name)
    if not is_remote(name) and (path.is_file() or path.suffix == ".json"):
        return Evaluation.load(path)
    return named_model(name)
