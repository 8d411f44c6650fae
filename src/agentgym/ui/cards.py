"""What ``show`` prints: a scenario, a run, an agent."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentgym.core.task import Split
from agentgym.evaluate.check import Finding
from agentgym.scenarios.base import Scenario
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from agentgym.ui.tables import comparison_view, grid, result_view
from agentgym.ui.words import number, percent, plural

_EXAMPLES = 5
_STATUS_STYLES = {"pass": "green", "fail": "bold red", "warn": "yellow", "skip": "dim"}
_SHARES = {
    "right tool": "right_tool",
    "right arguments": "right_arguments",
    "pass^1": "pass_1",
    "tool reliability": "tool_reliability",
}


def scenario_view(scenario: Scenario) -> RenderableType:
    """Show what a scenario asks, offers and counts as good enough."""
    facts = grid()
    facts.add_row("difficulty", scenario.difficulty)
    facts.add_row("time", scenario.estimated_time)
    goal = scenario.success_criteria()
    facts.add_row("goal", ", ".join(f"{k} {v:g}" for k, v in goal.items()))
    trained = [k for k, on in scenario.define_trainable_components().items() if on]
    facts.add_row("trained", ", ".join(trained))
    tools = grid()
    for spec in scenario.tools():
        arguments = ", ".join(spec.parameters.get("properties", {}))
        tools.add_row(f"{spec.name}({arguments})", spec.description)
    examples = grid()
    for task in scenario.tasks(Split.TRAIN, 0, _EXAMPLES):
        examples.add_row(f"level {task.level}", task.instruction)
    return Group(
        Text.assemble((scenario.name, "bold cyan"), f"  {scenario.description}"),
        Padding(facts, (0, 0, 1, 2)),
        Text("What the agent is told", "bold"),
        Padding(Text(scenario.system_prompt()), (0, 0, 1, 2)),
        Text("Tools", "bold"),
        Padding(tools, (0, 0, 1, 2)),
        Text("Some training tasks", "bold"),
        Padding(examples, (0, 0, 0, 2)),
    )


def findings_view(findings: Sequence[Finding]) -> RenderableType:
    """Show what each tripwire found."""
    rows = grid()
    for finding in findings:
        status = Text(finding.status, _STATUS_STYLES[finding.status])
        rows.add_row(status, Text(finding.name, "bold"), Text(finding.why))
    return rows


def run_view(
    run: RunFolder, status: str, result: TrainingResult | None, width: int
) -> RenderableType:
    """Show a run's settings, its newest step, its validations, and its result."""
    config, steps = run.config(), run.metrics()
    facts = grid()
    facts.add_row("status", status)
    facts.add_row("scenario", f"{config.scenario_name}, through {config.framework}")
    facts.add_row("model", config.model)
    if steps:
        last = steps[-1]
        facts.add_row(
            "newest step",
            f"{last['step']}: {last['episodes']:,} of "
            f"{plural(last['budget'], 'episode')}, reward {number(last['reward'])}, "
            f"success {percent(last['success_rate'])}, "
            f"tool reliability {percent(last['tool_reliability'])}",
        )
    parts: list[RenderableType] = [
        Text(str(run.path), "bold cyan"),
        Padding(facts, (0, 0, 0, 2)),
    ]
    measured = [line for line in steps if "validation" in line]
    if measured:
        parts += [Text(""), Text("On validation tasks", "bold"), _history(measured)]
    if result is not None:
        parts.append(result_view(result, width))
    elif status != "running":
        parts.append(Text(""))
        resume = f"agentgym train --resume {run.path}"
        parts.append(Text.assemble("Continue it with: ", (resume, "green")))
    return Group(*parts)


def _history(steps: list[dict[str, Any]]) -> RenderableType:
    """Show the shares of each validation, a row a step."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("step", justify="right")
    for label in _SHARES:
        table.add_column(label, justify="right")
    for step in steps:
        shares = (step["validation"][name]["value"] for name in _SHARES.values())
        table.add_row(str(step["step"]), *map(percent, shares))
    return Padding(table, (0, 0, 0, 2), expand=False)


def agent_view(agent: TrainedAgent, width: int) -> RenderableType:
    """Show where a trained agent comes from, its tools, and what it reached."""
    spec, made = agent.spec, agent.provenance
    facts = grid()
    facts.add_row("scenario", f"{spec.scenario}, trained through {spec.framework}")
    facts.add_row("base", made.base_model)
    facts.add_row(
        "training", f"{plural(made.steps, 'step')}, {plural(made.episodes, 'episode')}"
    )
    facts.add_row("created", made.created)
    facts.add_row("folder", str(agent.path))
    facts.add_row("tools", ", ".join(tool["function"]["name"] for tool in spec.tools))
    return Group(
        Text(agent.path.name, "bold cyan"),
        Padding(facts, (0, 0, 1, 2)),
        comparison_view(agent.baseline, agent.metrics, width),
    )
