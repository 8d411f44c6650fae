"""Show the plan, the measurements and the result of a run in the terminal."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.core.ledger import Ledger
from agentgym.evaluate.events import Plan
from agentgym.evaluate.metrics import MetricName, Metrics
from agentgym.evaluate.numbers import duration, plural
from agentgym.evaluate.ranker import judging_words, plan_words
from agentgym.train.export import Saved
from agentgym.train.places import Elsewhere
from agentgym.train.result import TrainingResult, effect_lines
from agentgym.ui.comparison import (
    BRIEF,
    CHANGES_NOTE,
    LEDGER_HEAD,
    METRICS_HEAD,
    METRICS_NOTE,
    TO,
    USUAL,
    MetricRow,
    family_rows,
    ledger_lines,
    metrics_lines,
    rows,
    values,
)
from agentgym.ui.layout import ByWidth, grid, headed, indent
from agentgym.ui.words import trained_words, use_of, weights_words

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 4
_MOST_BARS = 14
_BAR = 4  # columns of a bar, its gap included
_SCALE = 7  # columns left of the bars
_EMPTY = ("", None, "")
_TITLE = "Success on tasks that are not trained on: held out, validation by step"


def success_chart(
    before: float, validations: Sequence[tuple[int, float]], after: float, width: int
) -> Text:
    """Return a bar chart of success rates, 0..1."""
    most = max(1, min(_MOST_BARS, (width - _SCALE) // _BAR - 5))
    bars: list[tuple[str, float | None, str]] = [("before", before, "bright_black")]
    for step, share in _thinned(validations, most):
        bars.append((str(step), share, "cyan"))
    # An empty bar gives the words below the first and the last one room.
    bars = [bars[0], _EMPTY, *bars[1:], *[_EMPTY][: len(bars) - 1]]
    bars.append(("after", after, "green"))
    chart = Text(f"{_TITLE if len(_TITLE) <= width else 'Success'}\n", "bold")
    for row in reversed(range(_ROWS)):
        chart.append(f"{100 * (row + 1) // _ROWS:>{_SCALE - 2}} %", "dim")
        for _, height, style in bars:
            filled = 0.0 if height is None else height * _ROWS - row
            block = _BLOCKS[round(8 * min(1.0, max(0.0, filled)))]
            chart.append(f" {block * (_BAR - 1)}", style)
        chart.append("\n")
    labels = " " * _SCALE
    for number, (label, *_) in enumerate(bars):
        labels = f"{labels:<{_SCALE + _BAR * number + 1}}{label}"
    return chart.append(labels, "dim")


def _thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Return at most ``most`` points: means of a few, each at the last one's step."""
    count = min(most, len(points))
    edges = [round(n * len(points) / count) for n in range(count + 1)] if count else []
    groups = [points[a:b] for a, b in pairwise(edges)]
    return [(g[-1][0], sum(share for _, share in g) / len(g)) for g in groups]


WARM = "warm start"
"""Title of the column for metrics after the warm start, between before and after."""

NOT_BETTER = "It is not better: do not use it yet."
_NARROW = 72
_TIGHT = 92
_MOST_ROLES = 12
_ROLE = 24
_ROLES_NARROW = 76
_REASONS = 6
_FAMILIES = 8
_UPLOADS = 12
_LABELS = len("tool reliability")
_SPANS = len("0.04 [-0.01, 0.09]")


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
        for text in (*plan.agent.differences, *plan.agent.concerns):
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
        yield "its tools", f"{', '.join(plan.agent.bound)} change the task's state"
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


def metrics_view(title: str, metrics: Metrics) -> RenderableType:
    """Return a view of one measurement, with confidence intervals."""
    table = indent(grid(*values(metrics)))
    return Group(Text(title, "bold"), Text(over(metrics), "dim"), table)


def result_view(result: TrainingResult) -> RenderableType:
    """Return a view of a run's result: details first, the verdict and its use last."""
    parts: list[RenderableType] = [
        Text(""),
        Text("Before and after, on held-out tasks", "bold"),
        comparison_view(result.baseline, result.metrics, warm=result.warm_start),
    ]
    if result.imitated is not None:
        parts.append(Text(f"Warm start: {result.imitated.words()}.", "dim"))
    if found := family_rows(result.baseline, result.metrics, result.warm_start):
        title = Text("Success by family of tasks, worst first", "bold")
        parts += [Text(""), title, families_view(found)]
    for name, (before, after) in result.breakdown.items():
        title = Text(f"{name[:1].upper()}{name[1:]}", "bold")
        warm = result.warm_breakdown.get(name)
        parts += [Text(""), title, comparison_view(before, after, BRIEF, warm)]
    roles = roles_view(result.ledger, result.baseline, result.metrics)
    return Group(
        *parts,
        Text(""),
        ledger_view(result.ledger),
        *forgetting_view(result),
        *([*roles, Text("")] if roles else []),
        Text(""),
        verdict_view(result),
    )


def verdict_view(result: TrainingResult) -> RenderableType:
    """Return a view of a run's verdict and of the next steps."""
    spent = (
        f"{plural(result.steps, 'step')}, {plural(result.episodes, 'rollout')}, "
        f"{duration(result.wall_seconds)} ({duration(result.cpu_seconds)} of CPU time, "
        f"{result.peak_memory_mb / 1024:.1f} GB). Ended: "
        f"{result.stopped}. {weights_words(result)}"
    )
    first, last = result.baseline.pass_1.value, result.metrics.pass_1.value
    parts: list[RenderableType] = [
        ByWidth(lambda width: success_chart(first, result.validations, last, width)),
        Text(""),
        *(Text(words, style) for words, style in effect_lines(result)),
        Text(spent, "dim"),
        Text(saved_as(result.saved)),
    ]
    if steps := instead(result):
        parts.append(Text(f"{NOT_BETTER} Next:", "bold yellow"))
        parts += [Text(f"  - {step}") for step in steps]
    else:
        lines = "\n".join(f"  {line}" for line in use_of(result)[1].splitlines())
        parts += [Text("Use it:"), Text(lines, "green", overflow="fold")]
    look = f"See each rollout: agentgym view {result.artifacts.run}"
    return Group(*parts, Text(look, "dim"))


def forgetting_view(result: TrainingResult) -> list[RenderableType]:
    """Return a line on how much training changed answers to unrelated questions."""
    moved = result.forgetting
    if moved is None or moved.kl is None:
        return []
    style = "yellow" if moved.is_large else "dim"
    return [Text(f"On everyday questions: {moved.words()}.", style)]


def instead(result: TrainingResult) -> list[str]:
    """Return the next steps for an agent that is not better; [] if it is better."""
    if result.is_better or result.saved.is_default:
        return []
    return result.next_steps or [f"See `agentgym doctor {result.artifacts.run}`."]


def saved_as(saved: Saved) -> str:
    """Describe a saved version of an agent, and whether it is the default."""
    if saved.is_default:
        return f"Saved as {saved.name}, now the default: {saved.reason}."
    return (
        f"Saved as {saved.name}, not as the default: {saved.reason}. Make it the "
        f"default with: agentgym agents use {saved.name}"
    )


def comparison_view(
    before: Metrics,
    after: Metrics,
    names: Collection[MetricName] = USUAL,
    warm: Metrics | None = None,
) -> RenderableType:
    """Return a table that compares the metrics ``names`` of two measurements."""
    table = comparison_table(rows(before, after, names, warm))
    return Group(Text(over(after), "dim"), table)


def families_view(found: list[MetricRow]) -> RenderableType:
    """Return a table of success by family (kind) of tasks."""
    most = sorted(found, key=lambda row: -abs(row.change))[:_FAMILIES]
    parts = [comparison_table([row for row in found if row in most])]
    if left_out := [row for row in found if row not in most]:
        changes = [round(100 * row.change) for row in left_out]
        more = f"{plural(len(left_out), 'more family', 'more families')}, changed by "
        more += f"{min(changes):+d} to {max(changes):+d} points: see report.md."
        if not any(changes):
            more = more.partition(",")[0] + " did not change."
        parts.append(Text(more, "dim"))
    return Group(*parts)


def over(metrics: Metrics) -> str:
    """Describe the size of a measurement: number of tasks and of rollouts."""
    dropped = f", {metrics.dropped} dropped" if metrics.dropped else ""
    return (
        f"{plural(metrics.tasks, 'task')}, {plural(metrics.rollouts, 'rollout')}"
        f"{dropped}; 95 % intervals in brackets"
    )


def ledger_view(ledger: Ledger) -> Text:
    """Describe how many model calls were trained, masked or dropped, and why."""
    text = Text.assemble(
        (f"{plural(ledger.calls, 'model call')}: ", "bold"),
        f"{ledger.trained:,} trained, {ledger.masked.total():,} masked, "
        f"{ledger.dropped.total():,} dropped",
        f"; learned from: {ledger.tokens}" if ledger.tokens else "",
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
    if ledger.judging is not None:
        text.append(f"\n  {judging_words(ledger.judging)}", "dim")
    return text


def comparison_table(
    compared: list[MetricRow], names: tuple[str, str, str] = ("before", "after", "gain")
) -> RenderableType:
    """Return a table of compared metrics; ``names`` are the titles of its columns."""
    between = [WARM] if any(row.warm for row in compared) else []

    def draw(width: int) -> RenderableType:
        tight = width < _TIGHT
        table = headed(1 if tight else 3)
        table.add_column("", no_wrap=True, min_width=_LABELS)
        for name in (names[0], *between, names[1]):
            table.add_column(name, min_width=0 if tight else _SPANS)
        table.add_column(names[2], justify="right", no_wrap=True)
        for row in compared:
            style = {1: "green", 0: "", -1: "red"}[row.clear]
            gain = row.gain if width < _NARROW else row.full_gain
            gain = gain.replace(" points", "") if tight else gain
            bold = Text(row.after, "bold")
            warm = [row.warm for _ in between]
            table.add_row(row.label, row.before, *warm, bold, Text(gain, style))
        return table if width < _NARROW else indent(table)

    return ByWidth(draw)


def roles_view(
    ledger: Ledger, before: Metrics | None, after: Metrics | None
) -> list[RenderableType]:
    """Return tables of the model calls and the metrics of a team's roles."""
    parts: list[RenderableType] = []
    calls = ledger_lines(ledger)
    if calls:
        *roles, whole = calls
        shown = [*roles[:_MOST_ROLES], whole]
        parts += [Text(""), Text("Where the calls of each role went", "bold")]
        parts.append(
            _roles_table(LEDGER_HEAD, shown, left_out=len(roles) - _MOST_ROLES)
        )
    return parts + _roles_metrics(metrics_lines(before, after), CHANGES_NOTE)


def measured_roles_view(found: Metrics) -> list[RenderableType]:
    """Return a table of the metrics of a team's roles in one measurement."""
    return _roles_metrics(metrics_lines(None, found), METRICS_NOTE)


def _roles_metrics(lines: list[tuple[str, ...]], note: str) -> list[RenderableType]:
    if not lines:
        return []
    table = _roles_table(
        METRICS_HEAD, lines[:_MOST_ROLES], left_out=len(lines) - _MOST_ROLES
    )
    return [Text(""), Text("Each role", "bold"), Text(note, "dim"), table]


def _roles_table(
    head: tuple[str, ...], lines: list[tuple[str, ...]], *, left_out: int
) -> RenderableType:
    """Return a table; in a narrow terminal, ``before → after`` becomes ``after``."""

    def draw(width: int) -> RenderableType:
        is_narrow = width < _ROLES_NARROW
        table = headed(1)
        longest = _ROLE // 2 if is_narrow else _ROLE
        table.add_column(head[0], overflow="ellipsis", no_wrap=True, max_width=longest)
        for name in head[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for role, *cells in lines:
            kept = (cell.rpartition(TO)[2] if is_narrow else cell for cell in cells)
            table.add_row(role, *kept)
        if left_out > 0:
            table.add_row(f"{left_out} more", *[""] * (len(head) - 1))
        return indent(table)

    return ByWidth(draw)
