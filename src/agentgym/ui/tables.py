"""What the terminal shows of a plan, a measurement and a result."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentgym.core.ledger import Ledger
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import Plan
from agentgym.train.result import TrainingResult
from agentgym.ui.comparison import Row, breakdown_rows, rows, values
from agentgym.ui.words import duration, plural, rough_duration

_NARROW = 72
_TIGHT = 92
_REASONS = 6
_LABELS = len("tool reliability")
_SPANS = len("0.04 [-0.01, 0.09]")


def plan_view(plan: Plan) -> RenderableType:
    """Show what is about to happen, and roughly how long it takes."""
    config = plan.config
    facts = grid()
    facts.add_row("policy", f"{plan.model} on {plan.device}")
    facts.add_row(
        "agent", f"{config.agent or config.scenario_name} ({config.framework})"
    )
    ending = ", fewer once the goal holds" if config.early_stop else ""
    facts.add_row(
        "budget",
        f"{plural(config.episodes, 'episode')} in {plural(plan.steps, 'step')}{ending}",
    )
    facts.add_row(
        "rollouts",
        f"{plural(plan.workers, 'worker')}, {config.concurrency} episodes in flight "
        f"each; sandbox: {plan.sandbox}",
    )
    if config.task_choice == "adaptive":
        facts.add_row(
            "tasks",
            "kinds that still fail come more often: success in training may fall while "
            "the policy learns, go by validation",
        )
    facts.add_row("run", str(plan.run))
    whole = " if the whole budget is spent" if config.early_stop else ""
    facts.add_row("time", rough_duration(plan.estimated_seconds) + whole)
    verb = "Training"
    if plan.resumed_step is not None:
        verb = f"Continuing after step {plan.resumed_step}:"
    title = Text.assemble((f"{verb} ", "bold"), (config.scenario_name, "bold cyan"))
    return Group(title, indent(facts))


def metrics_view(title: str, metrics: Metrics) -> RenderableType:
    """Show one measurement with its intervals."""
    table = grid()
    for row in values(metrics):
        table.add_row(*row)
    return Group(Text(title, "bold"), Text(over(metrics), "dim"), indent(table))


def result_view(result: TrainingResult, width: int) -> RenderableType:
    """Show before and after, the ledger, and how to use the trained agent.

    Args:
        result: Of a finished run.
        width: Columns of the terminal.
    """
    parts: list[RenderableType] = [
        Text(""),
        Text("Before and after, on held-out tasks", "bold"),
        comparison_view(result.baseline, result.metrics, width),
    ]
    for name, (before, after) in result.breakdown.items():
        title = Text(f"{name[:1].upper()}{name[1:]}", "bold")
        table = comparison_table(breakdown_rows(before, after), width)
        parts += [Text(""), title, Text(over(after), "dim"), table]
    parts += [Text(""), ledger_view(result.ledger), Text(_spent(result), "dim")]
    parts += [Text(""), _usage(result.artifacts.saved_as, result.artifacts.run)]
    return Group(*parts)


def comparison_view(before: Metrics, after: Metrics, width: int) -> RenderableType:
    """Show two measurements on the same tasks side by side."""
    table = comparison_table(rows(before, after), width)
    return Group(Text(over(after), "dim"), table)


def ledger_view(ledger: Ledger) -> Text:
    """Show where every model call went, with the reasons, in two lines."""
    text = Text.assemble(
        (f"{plural(ledger.calls, 'model call')}: ", "bold"),
        f"{ledger.trained:,} trained, {ledger.masked.total():,} masked, "
        f"{ledger.dropped.total():,} dropped",
        ("" if ledger.adds_up else "  (does not add up!)", "bold red"),
    )
    reasons = [
        f"{verb}, {reason}: {count:,}"
        for verb, found in (("masked", ledger.masked), ("dropped", ledger.dropped))
        for reason, count in found.most_common()
    ]
    more = len(reasons) - _REASONS
    if more > 0:
        reasons = [*reasons[:_REASONS], f"{plural(more, 'other reason')}"]
    if reasons:
        text.append(f"\n  {'; '.join(reasons)}", "dim")
    return text


def _usage(saved_as: str, run: Path) -> RenderableType:
    code = (
        "  from agentgym import TrainedAgent\n"
        f'  agent = TrainedAgent.load("{saved_as}").to_langchain()\n'
    )
    saved = Text.assemble(("Saved as ", "bold"), (saved_as, "bold cyan"), ". Use it:\n")
    report = Text(f"Everything else is in {run}, report.md first.", "dim")
    return Group(saved, Text(code, "green", overflow="fold"), report)


def _spent(result: TrainingResult) -> str:
    return (
        f"{plural(result.steps, 'step')}, {plural(result.episodes, 'episode')}; "
        f"{duration(result.wall_seconds)} of wall time, "
        f"{duration(result.cpu_seconds)} of CPU time, "
        f"{result.peak_memory_mb / 1024:.1f} GB of memory at most. "
        f"Ended: {result.stopped}."
    )


def over(metrics: Metrics) -> str:
    """Say what figures are over: tasks and rollouts."""
    dropped = f", {metrics.dropped} dropped" if metrics.dropped else ""
    return (
        f"{plural(metrics.tasks, 'task')}, {plural(metrics.rollouts, 'rollout')}"
        f"{dropped}; 95 % intervals in brackets"
    )


def comparison_table(
    compared: list[Row],
    width: int,
    names: tuple[str, str, str] = ("before", "after", "gain"),
) -> RenderableType:
    """Show rows side by side, under the names of the three columns."""
    narrow = width < _NARROW
    tight = width < _TIGHT
    table = Table(
        box=None,
        padding=(0, 1 if tight else 3, 0, 0),
        pad_edge=False,
        header_style="dim",
    )
    table.add_column("", no_wrap=True, min_width=_LABELS)
    before, after, gain_name = names
    table.add_column(before, min_width=0 if tight else _SPANS)
    table.add_column(after, min_width=0 if tight else _SPANS)
    table.add_column(gain_name, justify="right", no_wrap=True)
    for row in compared:
        style = {1: "green", 0: "", -1: "red"}[row.clear]
        gain = row.gain if narrow else row.full_gain
        gain = gain.replace(" points", "") if tight else gain
        table.add_row(row.label, row.before, Text(row.after, "bold"), Text(gain, style))
    return table if narrow else indent(table)


def grid() -> Table:
    """Return an empty table of labels and what belongs to them."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def indent(view: RenderableType) -> Padding:
    """Return ``view`` moved in a little."""
    return Padding(view, (0, 0, 0, 2), expand=False)
