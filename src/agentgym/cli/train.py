"""``agentgym train``: train an agent on a scenario."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import (
    OF_TASKS,
    AsJson,
    Assigned,
    Command,
    flag,
    option,
    takes,
    tasks_or_scenario,
    use_agent,
    use_tool_options,
    with_assigned,
)
from agentgym.cli.output import announce_trial, print_json, progress_console
from agentgym.core.machines import is_elsewhere
from agentgym.core.panels import RUN, TASKS
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig


def _scenarios(context: typer.Context, words: list[str], begun: str) -> list[str]:
    """Return scenario names for shell completion."""
    from agentgym.scenarios.registry import scenario_names

    return scenario_names()


@takes(
    *("agent.reference", "framework", "agent.context", "agent.inputs"),
    *("agent.on_interrupt", "agent.configurable", "agent.allow_host"),
    *("model", "engine", "gpu", "time", "episodes", "goal", "warm_start", "seed"),
    *("name", "output", "yes", "unsafe_local_exec"),
    plugins=True,
    more=OF_TASKS,
)
def train(
    command: typer.Context,
    given: dict[str, Any],
    scenario: str | None = typer.Argument(
        None,
        help="What to train on; see `agentgym scenarios list`.",
        autocompletion=_scenarios,
    ),
    words: list[str] | None = typer.Argument(
        None,
        metavar="[KEY=VALUE]...",
        help="Any other setting, as learning_rate=1e-4, or a flag of vLLM's, as "
        "vllm.max_num_seqs=64.",
        show_default=False,
    ),
    program: Command = None,
    tasks: Path | None = option(
        "Instead of a scenario: a JSON Lines file of requests and expected calls.",
        metavar="FILE",
        panel=TASKS,
    ),
    assigned: Assigned = None,
    config: Path | None = option(
        "YAML file of settings; options win over it.", metavar="FILE", panel=RUN
    ),
    resume: str | None = option(
        "Continue this run: its folder or its name.", metavar="RUN", panel=RUN
    ),
    dry_run: bool = flag("Check everything, train nothing.", "--dry-run", panel=RUN),
    verbose: bool = flag("Show all facts of the plan.", "--verbose", panel=RUN),
    as_json: AsJson = False,
) -> None:
    """Train an agent's model until its tool calls are reliable.

    Shows the plan, live progress, and the results on held-out tasks before and after
    training. Ctrl-C ends the run cleanly; --resume continues it.

    Example: agentgym train --agent app.agents:graph --tasks tasks.jsonl
    """
    from agentgym.core.settings import variable_of

    words = list(words or ())
    if scenario is not None and _is_setting(scenario):
        words, scenario = [scenario, *words], None
    if files := [word for word in words if word.endswith(".jsonl")]:
        raise UsageError(
            f"{files[0]} is a tasks file, and {scenario} is a scenario: write "
            f"`agentgym train --tasks {files[0]}` or `agentgym train {scenario}`."
        )
    agent = use_agent(given, program)
    given = with_assigned(given, [*words, *(assigned or ())])
    named = "scenario" in given or variable_of("scenario") in os.environ
    named = named or scenario is not None
    if agent is not None and not named and (tasks, config, resume) == (None,) * 3:
        from agentgym.cli.tasks import needed_tools
        from agentgym.scenarios.tool_tasks.starter import starter_of

        tools_from = command.params["tools_from"]
        whose = None if tools_from else agent
        found = needed_tools(tools_from, whose, given)
        raise starter_of(agent, tools_from, found, write=not dry_run)
    if (source := tasks_or_scenario(scenario, tasks)) is not None:
        given["scenario"] = source
    use_tool_options(command, given)
    if resume is not None:
        settings = _resumed(given, clean=config is None and not dry_run)
    else:
        settings = _settings(config, given)
    announce_trial(settings.agent.reference if resume is None else None, as_json)
    if dry_run:
        _show_plan(settings, as_json)
    else:
        changes = given if resume is not None else {}
        _train(settings, resume, changes, command.obj, as_json, verbose)


def _is_setting(word: str) -> bool:
    """Return whether a word is ``KEY=VALUE``, and no scenario with options."""
    key, equals, _ = word.partition("=")
    return bool(equals) and "?" not in key and not os.path.exists(word)


def _resumed(given: dict[str, Any], *, clean: bool) -> "TrainingConfig":
    """Return settings with which to find the run to resume.

    Raises:
        UsageError: ``given`` has a setting that a resumed run may not change, or
            ``--config`` or ``--dry-run`` is given (then ``clean`` is false).
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.engines.resuming import may_change, refused_changes

    own = "--resume continues a run with its own settings; leave"
    if not clean:
        raise UsageError(f"{own} --config and --dry-run out.")
    output = given.pop("output", None)
    if refused := ", ".join(refused_changes(given)):
        raise UsageError(
            f"{own} out: {refused}. Only these may change: {', '.join(may_change())}."
        )
    return TrainingConfig.create(output=output, gpu=given.get("gpu"))


def _settings(config: Path | None, given: dict[str, Any]) -> "TrainingConfig":
    """Return the settings of a new run; ``given`` overrides the file ``config``."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import variable_of
    from agentgym.scenarios.registry import scenario_names

    if config is not None:
        return TrainingConfig.from_yaml(config, **given)
    if "scenario" not in given and variable_of("scenario") not in os.environ:
        raise UsageError(
            "Which scenario? Name one, as in `agentgym train coding`, your own agent, "
            "as in `agentgym train --agent app:agent`, or give --config or --resume. "
            f"Available: {', '.join(scenario_names())}."
        )
    return TrainingConfig.create(**given)


def _show_plan(settings: "TrainingConfig", as_json: bool) -> None:
    from agentgym.engines.registry import chosen_engine, composed_settings
    from agentgym.train.places import choose_machine
    from agentgym.train.trainer import Trainer
    from agentgym.ui.tables import plan_view

    settings = choose_machine(settings)
    if is_elsewhere(settings.gpu):
        _show_elsewhere(settings, as_json)
        return
    console = progress_console(as_json)
    chosen, _ = chosen_engine(settings)
    if not as_json and (composed := composed_settings(chosen)):
        console.print(composed, soft_wrap=True)  # shown even if it could not run
    plan = Trainer(settings).plan()
    if as_json:
        print_json(plan)
    else:
        console.print(plan_view(plan))
        console.print("Nothing was started: this was a dry run.", style="dim")


def _show_elsewhere(settings: "TrainingConfig", as_json: bool) -> None:
    """Print the plan of a run on another machine; for a rented one, also the cost."""
    from agentgym.train.places import place_of
    from agentgym.train.trainer import Trainer
    from agentgym.ui.tables import elsewhere_view

    console = progress_console(as_json)
    found = Trainer(settings).plan_elsewhere()
    prices = place_of(settings.gpu).prices(found.config)
    if as_json:
        print_json({"plan": found, "quotes": prices.records if prices else []})
        return
    console.print(elsewhere_view(found))
    if prices:
        console.print(prices.view)
    console.print("Nothing was sent or rented: this was a dry run.", style="dim")


def _train(
    settings: "TrainingConfig",
    resume: str | None,
    changes: dict[str, Any],
    began: float | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Train in a new run or in the run ``resume``, and print the result.

    ``changes`` replace settings of the resumed run. ``began`` is the
    command's start in ``time.monotonic()``.
    """
    from agentgym.train.trainer import Trainer
    from agentgym.ui.run import result_view
    from agentgym.ui.terminal_progress import TerminalProgress

    console = progress_console(as_json)
    with TerminalProgress(console, is_verbose=verbose) as progress:
        trainer = Trainer(settings, progress=progress, began=began)
        result = trainer.train(resume=resume, **changes)
    console.print(result_view(result.shown, result.artifacts.run))
    if as_json:
        print_json(result)
