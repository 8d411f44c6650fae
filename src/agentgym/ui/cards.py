"""Show the details of a scenario, a run, a trained agent, or rollouts."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agentgym.core.components import tokens_name
from agentgym.core.task import Split
from agentgym.evaluate.numbers import duration, number, percent, plural
from agentgym.rollout.summary import DropKind, Summary
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import tools_of
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from agentgym.ui.layout import grid, headed, indent
from agentgym.ui.tables import comparison_view, result_view
from agentgym.ui.words import trained_words

_EXAMPLES = 5
_LOSSES = 20
_SHARES = {
    "right tool": "right_tool",
    "right arguments": "right_arguments",
    "pass^1": "pass_1",
    "tool reliability": "tool_reliability",
}


def scenario_view(scenario: Scenario) -> RenderableType:
    """Return a view of a scenario: goals, system prompt, tools and example tasks."""
    goal = scenario.success_criteria().items()
    trained = tokens_name(scenario.define_trainable_components())
    facts = grid(
        ("difficulty", scenario.difficulty),
        ("time", scenario.estimated_time),
        ("goal", ", ".join(f"{name} {least:g}" for name, least in goal)),
        ("learns from", trained_words(trained)),
    )
    split = Split.TRAIN if Split.TRAIN in scenario.splits else scenario.splits[0]
    tasks = scenario.tasks(split, 0, _EXAMPLES)
    usual, title = scenario.tools(), "Tools"
    if not usual and tasks:
        usual = tools_of(scenario, tasks[0])
        title = "Tools of the first of these tasks; each has its own"
    tools = grid()
    for spec in usual:
        arguments = ", ".join(spec.parameters.get("properties", {}))
        tools.add_row(f"{spec.name}({arguments})", spec.description)
    return Group(
        Text.assemble((scenario.name, "bold cyan"), f"  {scenario.description}"),
        _below(facts),
        Text("The agent's system prompt", "bold"),
        _below(Text(scenario.system_prompt())),
        Text(title, "bold"),
        _below(tools),
        Text("Some training tasks" if split is Split.TRAIN else "Some tasks", "bold"),
        indent(grid(*((f"level {task.level}", task.instruction) for task in tasks))),
    )


def run_view(
    run: RunFolder, status: str, result: TrainingResult | None, machine: str = ""
) -> RenderableType:
    """Return a view of a run: settings, newest step, validations and result."""
    config, steps = run.config(), run.metrics()
    facts = grid(
        ("status", status),
        ("scenario", f"{config.scenario_name}, through {config.framework}"),
        ("model", config.model),
    )
    if form := run.record().get("form"):
        facts.add_row("tool calls", f"{form} form")
    if config.train_tokens is not None:
        facts.add_row("learns from", trained_words(config.train_tokens))
    if steps:
        last = steps[-1]
        facts.add_row(
            "newest step",
            f"{last['step']}: {last['episodes']:,} of "
            f"{plural(last['budget'], 'rollout')}, reward {number(last['reward'])}, "
            f"success {percent(last['success_rate'])}, "
            f"tool reliability {percent(last['tool_reliability'])}",
        )
    if counted := [step for step in steps if step.get("sequences")]:
        mean = sum(step["sequences"] for step in counted) / len(counted)
        breaks = sum(step["breaks"] for step in counted)
        message = f"{mean:.2f} a rollout, {plural(breaks, 'prefix break')}"
        facts.add_row("sequences", message)
    if machine:
        facts.add_row("machine", machine)
    parts: list[RenderableType] = [Text(str(run.path), "bold cyan"), indent(facts)]
    measured = [line for line in steps if "validation" in line]
    if measured:
        parts += [Text(""), Text("On validation tasks", "bold"), _history(measured)]
    if result is not None:
        parts.append(result_view(result))
    elif status != "running":
        resume = f"agentgym train --resume {run.path}"
        parts += [Text(""), Text.assemble("Continue it with: ", (resume, "green"))]
    return Group(*parts)


def _history(steps: list[dict[str, Any]]) -> RenderableType:
    """Return a table of validation metrics, with one row per training step."""
    table = headed(3)
    for label in ("step", *_SHARES):
        table.add_column(label, justify="right")
    for step in steps:
        shares = (step["validation"][name]["value"] for name in _SHARES.values())
        table.add_row(str(step["step"]), *map(percent, shares))
    return indent(table)


def agent_view(agent: TrainedAgent) -> RenderableType:
    """Return a view of a trained agent: its origin, its tools and its metrics."""
    spec, made = agent.spec, agent.provenance
    tools = ", ".join(tool["function"]["name"] for tool in spec.tools)
    none = "none of its own: each task brought some; give yours with tools="
    spent = f"{plural(made.steps, 'step')}, {plural(made.episodes, 'rollout')}"
    facts = grid(
        ("scenario", f"{spec.scenario}, trained through {spec.framework}"),
        ("base", made.base_model),
        ("training", spent),
        ("created", made.created),
        ("folder", str(agent.path)),
        ("tools", tools or none),
    )
    if made.run:
        facts.add_row("run", made.run)
    title = Text(agent.name, "bold cyan")
    if (version := agent.version) is not None:
        standing = f"not the default; make it so with: agentgym agents use {version}"
        if agent.is_default:
            standing = f"the default of {version.name}"
        title.append(f"  {standing}", "not bold default")
    return Group(title, _below(facts), comparison_view(agent.baseline, agent.metrics))


def _below(view: RenderableType) -> Padding:
    """Return ``view``, indented and followed by an empty line."""
    return Padding(view, (0, 0, 1, 2))


def summary_view(summary: Summary) -> RenderableType:
    """Return a view of many rollouts: outcomes with reasons, calls, tokens and time."""
    title = Text.assemble(
        (f"{plural(summary.rollouts, 'rollout')}: ", "bold"),
        f"{summary.succeeded:,} succeeded, {summary.failed:,} failed, "
        f"{summary.dropped:,} dropped",
        ("" if summary.adds_up else "  (does not add up!)", "bold red"),
    )
    errors = plural(summary.tool_errors, "error")
    lost = dict(summary.reasons)
    for drop in summary.drops:
        lost[drop.kind] -= drop.count
    facts = grid(
        *((reason, f"{count:,}") for reason, count in lost.items() if count),
        ("model calls", f"{summary.steps:,}"),
        ("tool calls", f"{summary.tool_calls:,}, {errors}"),
        ("tokens", _tokens(summary)),
    )
    if summary.mean_reward is not None:
        scored = plural(summary.scored, "rollout")
        facts.add_row("mean reward", f"{number(summary.mean_reward)} over {scored}")
        for name, mean in summary.mean_parts.items():
            facts.add_row(f"  {name}", number(mean))
    facts.add_row("time", f"{duration(summary.mean_duration_s)} a rollout")
    return Group(title, indent(facts), *map(_drop_view, summary.drops))


def _drop_view(drop: DropKind) -> RenderableType:
    """Return a view of the rollouts that were dropped for the same kind of reason."""
    named = zip(drop.rollouts, drop.tasks, strict=True)
    which = ", ".join(f"{rollout} ({task})" for rollout, task in named)
    more = drop.count - len(drop.rollouts)
    which += f" and {more:,} more" if more else ""
    title = Text.assemble(
        (f"{plural(drop.count, 'rollout')} dropped", "bold yellow"), f": {drop.kind}"
    )
    detail = Text(drop.detail or "no more is known", overflow="fold")
    return Group(title, indent(grid(("which", which), ("first", detail))))


def continuity_view(losses: Mapping[str, Sequence[str]]) -> RenderableType:
    """Return a view of the model calls whose prompts lost a part of the conversation.

    ``losses`` has, by rollout, a description of each such call.
    """
    if not losses:
        return Text("No conversation lost context.", "green")
    lines = [f"  {name} {loss}" for name, found in losses.items() for loss in found]
    title = f"Context was lost in {plural(len(losses), 'rollout')}:"
    more = len(lines) - _LOSSES
    shown = lines[:_LOSSES] + ([f"  ({more:,} more; see --json)"] if more > 0 else [])
    return Text("\n".join([title, *shown]), "yellow")


def _tokens(summary: Summary) -> str:
    if summary.steps == summary.uncounted_calls:
        return "not counted by the model"
    text = f"{summary.prompt_tokens:,} in prompts, {summary.response_tokens:,} sampled"
    if summary.uncounted_calls:
        text += f"; {plural(summary.uncounted_calls, 'call')} not counted"
    return text
