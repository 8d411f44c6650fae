"""Show plans, and measurements before they are a result, in the terminal."""

from collections.abc import Collection, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.evaluate.events import Plan
from agentgym.evaluate.metrics import METRICS, MetricName, Metrics
from agentgym.evaluate.numbers import duration, plural
from agentgym.evaluate.ranker import plan_words
from agentgym.evaluate.rows import USUAL, compared, over, values
from agentgym.evaluate.shown import WARM
from agentgym.train.places import Elsewhere
from agentgym.ui.layout import grid, indent, trained_words
from agentgym.ui.run import compared_view

_UPLOADS = 12


def plan_view(plan: Plan, *, is_full: bool = True) -> RenderableType:
    """Return a view of the plan of a run; only the main facts unless ``is_full``."""
    config = plan.config
    steps = plural(plan.steps, "step")
    budget = f"at most {plural(config.episodes, 'rollout')} in {steps}"
    if config.time is not None:
        budget += f" and {duration(config.time)}"
    if config.early_stop:
        budget += "; ends sooner when validation has stopped rising"
    between = ", after the warm start" * config.warm_start
    measured = f"{plan.held_out:,} held-out rollouts before{between} and after"
    facts = grid(
        ("policy", f"{plan.model} on {plan.device}"),
        (
            "agent",
            f"{config.agent.reference or config.scenario_name} ({config.framework})",
        ),
        ("training", budget),
        ("measured", measured),
    )
    if is_full:
        for row in _details(plan):
            facts.add_row(*row)
    if plan.agent is not None:
        for text in plan.agent.concerns:
            facts.add_row("note", text)
    for text in plan.notes:
        facts.add_row("note", text)
    facts.add_row("run", f"{plan.run}, saved as the next version of {plan.saved_as}")
    verb = f"Continuing after step {plan.resumed_step}:"
    if plan.resumed_step is None:
        verb = "Training"
    title = Text.assemble((f"{verb} ", "bold"), (config.scenario_name, "bold cyan"))
    return Group(title, indent(facts))


def _details(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield further rows of a plan, with label and text."""
    config = plan.config
    if plan.form:
        form = f"{plan.form} form"
        if plan.drops_reasoning:
            form += "; the chat template leaves earlier reasoning out after the next "
            form += "user message, where a new sequence begins"
        yield "tool calls", form
    if plan.path:
        yield "path", plan.path
    if plan.memory:
        yield "memory", plan.memory
    workers = f"{plural(plan.workers, 'worker')}, {config.in_flight} rollouts in "
    yield "rollouts", f"{workers}flight each; sandbox: {plan.sandbox}"
    if plan.answers:
        yield "answers", plan.answers
    if plan.agent is not None:
        yield "its model", plan.agent.way
        if names := ", ".join(plan.agent.bound):
            yield "its tools", f"{names} change the task's state"
        for name, fate in plan.agent.own.items():
            yield "own tool", f"{name} {fate}"
    if config.train_roles is not None:
        others = "the others are answered by the same weights, and none of their calls "
        others += "is learned from"
        if config.role_adapters:
            others = "each has an adapter of its own, and the others are answered by "
            others += "the model as it was"
        yield "roles", f"only {', '.join(config.train_roles)}: {others}"
    if plan.trained:
        yield "learns from", trained_words(plan.trained)
    if plan.objective:
        yield "algorithm", plan.objective
    if plan.judge:
        yield "judge", plan.judge
    if config.task_choice == "adaptive":
        choice = "those whose attempts end differently come more often, so that "
        choice += "success in training stays low: validation shows the progress"
        yield "tasks", choice
    if config.warm_start:
        yield WARM, "the calls that training tasks need are imitated first"
    if plan.validations:
        often = f"every {plural(config.eval_every, 'step')}"
        tasks = plural(config.eval_tasks, "task")
        yield "validation", f"about {tasks} {often}, at most a fifth of all rollouts"
    if config.time is not None:
        sized = "held-out and validation tasks are sized to it once rollouts were timed"
        yield "time", f"{duration(config.time)}: {sized}"
    elif plan.expected:
        yield "time", f"{plan.expected}; known once the baseline is measured"


def elsewhere_view(plan: Elsewhere) -> RenderableType:
    """Return a view of the plan of a run on another machine, with files to upload."""
    size = sum(plan.uploads.values())
    sent = f"{plural(len(plan.uploads), 'file')}, {size / 2**20:,.1f} MB"
    facts = grid(
        ("machine", plan.machine),
        ("folder", f"{plan.folder} on that machine"),
        ("sends", sent if plan.uploads else "settings alone"),
        *(("", name) for name in list(plan.uploads)[:_UPLOADS]),
    )
    if (more := len(plan.uploads) - _UPLOADS) > 0:
        facts.add_row("", f"and {plural(more, 'more file')}")
    facts.add_row("installs", "\n".join(plan.installs))
    if plan.engine:
        facts.add_row("engine", plan.engine)
    if plan.variables:
        facts.add_row("hands over", f"the values of {', '.join(plan.variables)}")
    facts.add_row("budget", plural(plan.config.episodes, "rollout"))
    if words := plan_words(plan.config):
        facts.add_row("judge", words)
    title = Text.assemble(
        ("Training elsewhere: ", "bold"), (plan.config.scenario_name, "bold cyan")
    )
    return Group(title, indent(facts))


def metrics_view(
    title: str, metrics: Metrics, names: Collection[MetricName] = METRICS
) -> RenderableType:
    """Return a view of one measurement, with confidence intervals."""
    table = indent(grid(*values(metrics, names=names)))
    return Group(Text(title, "bold"), Text(over(metrics), "dim"), table)


def comparison_view(
    before: Metrics,
    after: Metrics,
    names: Collection[MetricName] = USUAL,
    warm: Metrics | None = None,
) -> RenderableType:
    """Return a table that compares the metrics ``names`` of two measurements."""
    return compared_view(compared(before, after, names, warm))
