"""Show a user's agent before training, in the terminal."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.core.json_schema import properties
from agentgym.rollout.inspection import AgentReport, RoleFound
from agentgym.ui.layout import grid, indent

_PROMPT = 200


def agent_view(report: AgentReport) -> RenderableType:
    """Return a view of an agent's definition, and of whether it can be trained."""
    head = Text.assemble(
        (report.agent, "bold"), f"  {report.kind} ({report.framework})"
    )
    parts: list[RenderableType] = [head, indent(grid(("model", report.way)))]
    for role in report.roles:
        parts.append(indent(_role(role)))
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
    for text in (*report.differences, *report.concerns, *too_long):
        facts.add_row("note", text)
    if facts.row_count:
        parts.append(indent(facts))
    parts.append(_verdict(report))
    return Group(*parts)


def _role(role: RoleFound) -> RenderableType:
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


def _verdict(report: AgentReport) -> RenderableType:
    if report.problems:
        return Group(*(Text(problem, "bold red") for problem in report.problems))
    calls = "once" if report.model_calls == 1 else f"{report.model_calls} times"
    its = {tool["function"]["name"] for role in report.roles for tool in role.tools}
    left = ", ".join(name for name in report.missing if name in its or not its)
    reached = f"each of its tools was reached{f', but for {left}' if left else ''}"
    other = " with another model" if report.too_long else ""
    return Text(
        f"It can be trained{other}: in a trial it asked the model {calls}, "
        f"and {reached}.",
        "yellow" if report.missing else "green",
    )
