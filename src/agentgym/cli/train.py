"""``agentgym train``: train an agent on a scenario."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from agentgym.cli.options import (
    AGENT,
    MACHINE,
    MODEL,
    RUN,
    TASKS,
    TRAINING,
    Agent,
    AllowHost,
    AllowTool,
    AsJson,
    Categories,
    ChatTemplate,
    CheckCommand,
    CheckFunction,
    Command,
    Configurable,
    Constrain,
    Context,
    Data,
    Framework,
    Inputs,
    Judge,
    JudgeMaxCost,
    JudgePriceIn,
    JudgePriceOut,
    JudgeRubric,
    OnInterrupt,
    Prompts,
    Thinking,
    ToolAnswers,
    ToolFormat,
    ToolsFrom,
    UnsafeLocalExec,
    flag,
    given_settings,
    option,
    tasks_or_scenario,
    use_tool_options,
    with_data,
)
from agentgym.cli.output import announce_trial, print_json, progress_console
from agentgym.core.machines import HERE, RENTED, is_elsewhere
from agentgym.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig


def _engines(context: typer.Context, words: list[str], begun: str) -> list[str]:
    """Return engine names for shell completion of --engine."""
    from agentgym.engines.registry import ENGINES

    return ["auto", *ENGINES.names()]


def _scenarios(context: typer.Context, words: list[str], begun: str) -> list[str]:
    """Return scenario names for shell completion."""
    from agentgym.scenarios.registry import scenario_names

    return scenario_names()


def _places(context: typer.Context, words: list[str], begun: str) -> list[str]:
    """Return the values of --gpu for shell completion."""
    return [*HERE, *RENTED]


def train(
    command: typer.Context,
    scenario: str | None = typer.Argument(
        None,
        help="What to train on; see `agentgym scenarios list`.",
        autocompletion=_scenarios,
    ),
    overrides: list[str] | None = typer.Argument(
        None,
        metavar="[vllm.KEY=VALUE]...",
        help="Any flag of vLLM's, as in vllm.max_num_seqs=64; of verl's verl.KEY.",
        show_default=False,
    ),
    agent: Agent = None,
    program: Command = None,
    framework: Framework = None,
    context: Context = None,
    inputs: Inputs = None,
    on_interrupt: OnInterrupt = None,
    allow_host: AllowHost = None,
    configurable: Configurable = None,
    prompts: Prompts = None,
    train_roles: str | None = option(
        "With a team: the roles to train. The others are not.",
        metavar="NAME,NAME",
        panel=AGENT,
    ),
    role_adapters: bool = flag(
        "With --train-roles: a LoRA adapter for each of these roles.",
        "--role-adapters",
        panel=AGENT,
    ),
    tasks: Path | None = option(
        "Instead of a scenario: a JSON Lines file of requests and expected calls.",
        metavar="FILE",
        panel=TASKS,
    ),
    data: Data = None,
    categories: Categories = None,
    tools_from: ToolsFrom = None,
    tools: ToolAnswers = None,
    allow_tool: AllowTool = None,
    check: CheckFunction = None,
    check_command: CheckCommand = None,
    judge: Judge = None,
    judge_rubric: JudgeRubric = None,
    judge_price_in: JudgePriceIn = None,
    judge_price_out: JudgePriceOut = None,
    judge_max_cost: JudgeMaxCost = None,
    model: str | None = option(
        "The model to train.", metavar="nano|FOLDER|OWNER/NAME", panel=MODEL
    ),
    tool_format: ToolFormat = None,
    chat_template: ChatTemplate = None,
    thinking: Thinking = None,
    constrain: Constrain = None,
    engine: str | None = option(
        "The engine that updates the model; also an installed package's.",
        metavar="auto|local|vllm|verl|lightning",
        autocompletion=_engines,
        panel=MODEL,
    ),
    gpus_per_node: int | None = option(
        "GPUs on each machine, with all engines but local.", metavar="N", panel=MODEL
    ),
    nodes: int | None = option(
        "Machines, with --engine verl.", metavar="N", panel=MODEL
    ),
    time: str | None = option(
        "End within this time, measurements included: 30m, 1h30m.",
        metavar="TIME",
        panel=TRAINING,
    ),
    episodes: int | None = option(
        "Most training rollouts.", metavar="N", panel=TRAINING
    ),
    algorithm: Literal["rloo", "grpo", "dr_grpo", "dapo", "reinforce++", "ppo"]
    | None = option("How attempts are compared.", panel=TRAINING),
    warm_start: bool = flag(
        "Imitate the calls that tasks need first (supervised fine-tuning).",
        "--warm-start",
        panel=TRAINING,
    ),
    seed: int | None = option(
        "Seed of tasks, sampling and initialisation.", metavar="N", panel=TRAINING
    ),
    deterministic: bool = flag(
        "Same seed, same weights; slower.", "--deterministic", panel=TRAINING
    ),
    assigned: list[str] | None = option(
        "Any other setting, as in learning_rate=1e-4. Can be given again.",
        "--set",
        metavar="KEY=VALUE",
        panel=TRAINING,
    ),
    gpu: str | None = option(
        "Where to train: on this machine, or on a rented or your own other one.",
        metavar="auto|local|none|runpod|lambda|sky|ssh:USER@HOST",
        autocompletion=_places,
        panel=MACHINE,
    ),
    spot: bool | None = option(
        "Rent a machine that may be taken away, for less.",
        "--spot/--no-spot",
        panel=MACHINE,
    ),
    max_hourly: float | None = option(
        "A rented machine's most $ an hour.", metavar="$", panel=MACHINE
    ),
    max_cost: float | None = option(
        "A rented machine's most $ in all; then the run ends.",
        metavar="$",
        panel=MACHINE,
    ),
    config: Path | None = option(
        "YAML file of settings; options win over it.", metavar="FILE", panel=RUN
    ),
    resume: str | None = option(
        "Continue this run: its folder or its name.", metavar="RUN", panel=RUN
    ),
    name: str | None = option(
        "Name of the saved agent and the run; by default the agent's own.",
        metavar="NAME",
        panel=RUN,
    ),
    output: Path | None = option(
        "Folder of runs; ./runs by default.", metavar="FOLDER", panel=RUN
    ),
    tracker: Literal["tensorboard", "wandb", "none"] | None = option(
        "Where curves are written.", panel=RUN
    ),
    unsafe_local_exec: UnsafeLocalExec = False,
    yes: bool = flag(
        "Rent without a question; train where the baseline gives no hope.",
        "--yes",
        panel=RUN,
    ),
    goal: str | None = option(
        "Shares to reach, as in pass_1=0.9: the run ends once it does, or cannot.",
        metavar="METRIC=SHARE",
        panel=RUN,
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
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import variable_of
    from agentgym.engines.settings import overrides as overrides_of

    given = given_settings(command, TrainingConfig)
    agent = given.get("agent")
    words = list(overrides or ())
    if scenario is not None and scenario.startswith(("verl.", "vllm.")):
        words, scenario = [scenario, *words], None
        del given["scenario"]
    given |= _assigned(assigned or [], given)
    given |= overrides_of(words)
    named = "scenario" in given or variable_of("scenario") in os.environ
    if agent is not None and not named and (tasks, config, resume) == (None,) * 3:
        from agentgym.cli.inspect import options_of, tools_of
        from agentgym.scenarios.tool_tasks.starter import starter_of

        found = tools_of(agent, tools_from, given)
        options = options_of(given)
        raise starter_of(agent, tools_from, found, options, write=not dry_run)
    if (source := tasks_or_scenario(scenario, tasks)) is not None:
        given["scenario"] = source
    if data is not None or categories is not None:
        given["scenario"] = with_data(given.get("scenario", ""), data, categories)
    use_tool_options(command, given)
    if resume is not None:
        settings = _resumed(given, clean=config is None and not dry_run)
    else:
        settings = _settings(config, given)
    announce_trial(settings.agent.reference if resume is None else None, as_json)
    if dry_run:
        _show_plan(settings, as_json)
    else:
        may_change: dict[str, Any] = {"episodes": episodes, "yes": yes or None}
        may_change |= {"gpu": gpu, "warm_start": warm_start or None, "time": time}
        may_change |= {"max_hourly": max_hourly, "max_cost": max_cost, "spot": spot}
        may_change |= {"judge_max_cost": judge_max_cost}
        if resume is not None:
            may_change |= _machine_settings(given)
        _train(settings, resume, may_change, command.obj, as_json, verbose)


def _assigned(words: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that ``--set KEY=VALUE`` options give, by name."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import read_assignments

    found = TrainingConfig.flat(read_assignments(words, TrainingConfig.names()))
    by_option = TrainingConfig.flat(given)
    for key in found.keys() & by_option.keys():
        raise ConfigError(
            f"{key} is given twice: --set {key}={found[key]} and by its own option, "
            f"{by_option[key]}. Leave one out."
        )
    return found


def _resumed(given: dict[str, Any], *, clean: bool) -> "TrainingConfig":
    """Return settings with which to find the run to resume.

    Raises:
        UsageError: ``given`` has a setting that a resumed run may not change, or
            ``--config`` or ``--dry-run`` is given (then ``clean`` is false).
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.engines.resuming import MACHINE, refused_changes

    own = "--resume continues a run with its own settings; leave"
    if not clean:
        raise UsageError(f"{own} --config and --dry-run out.")
    refused = ", ".join(k for k in refused_changes(given) if k != "output")
    if refused:
        machine = ", ".join([*MACHINE, "vllm.KEY=VALUE", "verl.KEY=VALUE"])
        raise UsageError(
            f"{own} out: {refused}. Only --episodes, --time, --gpu, --spot, "
            "--max-hourly, --max-cost, --judge-max-cost, --warm-start, --yes and "
            f"settings of memory and servers may change: {machine}."
        )
    return TrainingConfig.create(output=given.get("output"), gpu=given.get("gpu"))


def _machine_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Select the settings for memory and servers, which a resumed run may change."""
    from agentgym.core.config import TrainingConfig
    from agentgym.engines.resuming import LIBRARIES, MACHINE

    given = TrainingConfig.flat(given)
    return {name: given[name] for name in (*MACHINE, *LIBRARIES) if name in given}


def _settings(config: Path | None, given: dict[str, Any]) -> "TrainingConfig":
    """Return the settings of a new run; ``given`` overrides the file ``config``."""
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import variable_of
    from agentgym.engines.resuming import LIBRARIES, merged_changes
    from agentgym.scenarios.registry import scenario_names

    if config is not None:
        given = TrainingConfig.flat(given)
        own = {name: given.pop(name) for name in LIBRARIES if name in given}
        made = TrainingConfig.from_yaml(config, **given)
        return made.replaced(**merged_changes(made, own))
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
    may_change: dict[str, Any],
    began: float | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Train in a new run or in the run ``resume``, and print the result.

    ``may_change`` has settings that replace those of the resumed run. ``began`` is the
    command's start in ``time.monotonic()``.
    """
    from agentgym.train.trainer import Trainer
    from agentgym.ui.tables import result_view
    from agentgym.ui.terminal_progress import TerminalProgress

    console = progress_console(as_json)
    with TerminalProgress(console, is_verbose=verbose) as progress:
        trainer = Trainer(settings, progress=progress, began=began)
        result = trainer.train(resume=resume, **may_change)
    console.print(result_view(result))
    if as_json:
        print_json(result)
