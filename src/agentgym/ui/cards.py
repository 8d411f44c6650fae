"""Show the details of a scenario, a run, an agent, or rollouts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agentgym.core.components import tokens_name
from agentgym.core.json_schema import properties
from agentgym.core.task import Split
from agentgym.evaluate.numbers import duration, number, plural
from agentgym.ui.layout import grid, indent, trained_words
from agentgym.ui.tables import comparison_view

if TYPE_CHECKING:
    from agentgym.rollout.inspection import AgentReport, RoleFound
    from agentgym.rollout.summary import DropKind, Summary
    from agentgym.scenarios.base import Scenario
    from agentgym.train.trained_agent import TrainedAgent

_EXAMPLES = 5
_PROMPT = 200
_LOSSES = 20


def scenario_view(scenario: "Scenario") -> RenderableType:
    """Return a view of a scenario: goals, system prompt, tools and example tasks."""
    from agentgym.scenarios.task_lists import tools_of

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


def agent_view(agent: "TrainedAgent") -> RenderableType:
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


def summary_view(summary: "Summary") -> RenderableType:
    """Return a view of many rollouts: outcomes with reasons, calls, tokens and time."""
    title = Text.assemble(
        (f"{plural(summary.rollouts, 'rollout')}: ", "bold"),
        f"{summary.succeeded:,} succeeded, {summary.failed:,} failed, "
        f"{summary.dropped:,} dropped",
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


def _drop_view(drop: "DropKind") -> RenderableType:
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


def _tokens(summary: "Summary") -> str:
    if summary.steps == summary.uncounted_calls:
        return "not counted by the model"
    text = f"{summary.prompt_tokens:,} in prompts, {summary.response_tokens:,} sampled"
    if summary.uncounted_calls:
        text += f"; {plural(summary.uncounted_calls, 'call')} not counted"
    return text


def inspection_view(report: "AgentReport") -> RenderableType:
    """Return a view of an agent's definition, and of whether it can be trained."""
    head = Text.assemble(
        (report.agent, "bold"), f"  {report.kind} ({report.framework})"
    )
    parts: list[RenderableType] = [head, indent(grid(("model", report.way)))]
    for role in report.roles:
        parts.append(indent(_role_view(role)))
    facts = grid()
    if report.bound:
        facts.add_row(
            "in training", f"calls change the task's state: {', '.join(report.bound)}"
        )
    for name, fate in report.own.items():
        facts.add_row("own tool", f"{name} {fate}" if fate else name)
    if report.missing:
        facts.add_row("not offered", ", ".join(report.missing))
    too_long = [report.too_long] if report.too_long else []
    for text in (*report.concerns, *too_long):
        facts.add_row("note", text)
    if facts.row_count:
        parts.append(indent(facts))
    if not report.problems:
        parts.append(_inspected(report))
    return Group(*parts)


def _role_view(role: "RoleFound") -> RenderableType:
    table = grid(("role", Text(role.name, "bold")))
    if role.model:
        table.add_row("its model", role.model)
    if role.prompt:
        message = " ".join(role.prompt.split())
        table.add_row(
            "prompt", message if len(message) <= _PROMPT else f"{message[:_PROMPT]}…"
        )
    for tool in role.tools:
        table.add_row("tool", _signature(tool["function"]))
    return table


def _signature(function: dict[str, Any]) -> Text:
    parameters = function.get("parameters") or {}
    required = parameters.get("required", [])
    named = [
        f"{name}{'' if name in required else '?'}: {_kind(schema)}"
        for name, schema in properties(parameters).items()
    ]
    return Text(f"{function['name']}({', '.join(named)})")


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if choices := schema.get("anyOf"):
        kinds = dict.fromkeys(_kind(each) for each in choices if isinstance(each, dict))
        return " | ".join(kind for kind in kinds if kind != "null") or "null"
    types = schema.get("type", "any")
    return types if isinstance(types, str) else " | ".join(types)


def _inspected(report: "AgentReport") -> RenderableType:
    calls = "once" if report.model_calls == 1 else f"{report.model_calls} times"
    its = {tool["function"]["name"] for role in report.roles for tool in role.tools}
    left = ", ".join(name for name in report.missing if name in its or not its)
    reached = f"each tool that it offered was reached{f', but for {left}' * bool(left)}"
    other = " with another model" if report.too_long else ""
    return Text(
        f"It can be trained{other}: in a trial it asked the model {calls}, "
        f"and {reached}.",
        "yellow" if report.missing else "green",
    )
