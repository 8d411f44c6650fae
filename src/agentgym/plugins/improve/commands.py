"""``agentgym improve``: try better prompts, then training, until a goal is reached."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from agentgym.cli.options import (
    AllowTool,
    AsJson,
    Assigned,
    CheckFunction,
    ToolAnswers,
    ToolsFrom,
    flag,
    opt,
    option,
    takes,
    tasks_or_scenario,
    token_prices,
    use_agent,
    with_assigned,
    with_tools,
)
from agentgym.cli.output import print_json, progress_console
from agentgym.core.panels import AGENT, MODEL, TASKS
from agentgym.errors import UsageError
from agentgym.scenarios.packs import is_tasks_file

GOAL = "Goal and money"


@takes(
    *("agent.reference", "framework", "agent.context", "agent.inputs"),
    *("agent.on_interrupt", "agent.configurable", "gpu", "episodes", "seed"),
    *("output", "unsafe_local_exec"),
)
def improve(
    given: dict[str, Any],
    goal: Annotated[
        str,
        opt(
            "The share to reach on held-out tasks, as in pass_1=0.9.",
            metavar="SHARE=NUMBER",
            panel=GOAL,
        ),
    ],
    scenario: str | None = typer.Argument(
        None, metavar="[FILE]", help="The tasks file, as --tasks.", show_default=False
    ),
    tasks: Path | None = option(
        "A JSON Lines file of requests and expected calls.",
        metavar="FILE",
        panel=TASKS,
    ),
    tools_from: ToolsFrom = None,
    tools: ToolAnswers = None,
    allow_tool: AllowTool = None,
    check: CheckFunction = None,
    model: str | None = option(
        "The model to begin with, and to train if it is an open one; by default "
        "the agent's own, if its provider's key is set, else nano.",
        metavar="nano|FOLDER|OWNER/NAME|PROVIDER:MODEL|ADDRESS",
        panel=MODEL,
    ),
    price_in: float | None = option(
        "$ per million tokens that it reads.", min=0.0, panel=MODEL
    ),
    price_out: float | None = option(
        "$ per million tokens that it writes.", min=0.0, panel=MODEL
    ),
    reflection: str | None = option(
        "The model that writes better prompts; without it that rung is left out. "
        "It is sent attempts at training tasks.",
        metavar="PROVIDER:MODEL|ADDRESS",
        panel=AGENT,
    ),
    reflection_price_in: float | None = option(
        "$ per million tokens that it reads.", min=0.0, panel=AGENT
    ),
    reflection_price_out: float | None = option(
        "$ per million tokens that it writes.", min=0.0, panel=AGENT
    ),
    search_rollouts: int = option(
        "Rollouts of the search for prompts.", default=150, min=1, panel=AGENT
    ),
    bigger: str | None = option(
        "The model to quote a rented GPU for, if all else was not enough.",
        metavar="OWNER/NAME",
        panel=MODEL,
    ),
    assigned: Assigned = None,
    max_cost: float = option(
        "Most $ in all; by default none is spent.", default=0.0, min=0.0, panel=GOAL
    ),
    yes: bool = flag("Spend up to --max-cost without a question.", "--yes", panel=GOAL),
    as_json: AsJson = False,
) -> None:
    """Improve an agent until it meets a goal: prompts, then training.

    Measures the unchanged agent first. Stops after the first step (rung) that meets the
    goal on held-out tasks, and shows the result and cost of each step. Ctrl-C keeps the
    results of finished steps; the same command continues after them.

    Example: agentgym improve --agent app:graph --tasks tasks.jsonl --goal pass_1=0.9
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.core.settings import variable_of
    from agentgym.plugins.improve import Terms, improve, read_goal
    from agentgym.plugins.improve.screens import bill_view
    from agentgym.plugins.improve.terms import BIGGER
    from agentgym.ui.terminal_progress import TerminalProgress

    terms = Terms(
        read_goal(goal),
        max_cost=max_cost,
        prices=token_prices("price", price_in, price_out),
        reflection=reflection,
        reflection_prices=token_prices(
            "reflection-price", reflection_price_in, reflection_price_out
        ),
        searched=search_rollouts,
        bigger=bigger or BIGGER,
        yes=yes,
    )
    use_agent(given)
    chosen = with_assigned(given, assigned)
    chosen |= {} if model is None else {"model": model}
    source = tasks_or_scenario(scenario, tasks)
    if source is None or not is_tasks_file(source):
        raise UsageError("Which tasks? Give --tasks FILE, a tasks file (.jsonl).")
    chosen["scenario"] = with_tools(source, tools_from, tools, allow_tool, check)
    config = TrainingConfig.create(**chosen)
    own = "model" not in chosen and variable_of("model") not in os.environ
    console = progress_console(as_json)
    with TerminalProgress(console) as progress:
        bill = improve(config, terms, own=own, progress=progress)
    console.print(bill_view(bill))
    if as_json:
        print_json(bill)
    if not bill.is_met:
        raise typer.Exit(1)
