"""Write Markdown reports of a run, an evaluation or a comparison."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentgym.core.nested.keys import flattened
from agentgym.evaluate.call_classes import ConfusionMatrix
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.metrics import METRICS
from agentgym.evaluate.numbers import duration, plural
from agentgym.evaluate.ranker import judging_words
from agentgym.evaluate.result import Evaluation
from agentgym.train.result import TrainingResult, effect_lines
from agentgym.ui.comparison import BRIEF, MetricRow, family_rows, rows, values
from agentgym.ui.evaluation import confusion_cells, family_lines, verdict
from agentgym.ui.reports.worse import worse_parts
from agentgym.ui.roles import (
    CHANGES_NOTE,
    LEDGER_HEAD,
    METRICS_HEAD,
    METRICS_NOTE,
    ledger_lines,
    metrics_lines,
)
from agentgym.ui.tables import NOT_BETTER, WARM, instead, saved_as
from agentgym.ui.words import trained_words, use_of, weights_words


def render_report(
    result: TrainingResult,
    machine: str = "",
    instructions: Mapping[str, str] | None = None,
    confusion: ConfusionMatrix | None = None,
) -> str:
    """Return the Markdown report of a run."""
    config, metrics, ledger = result.config, result.metrics, result.ledger
    moved = result.forgetting
    place = f" on {result.device}" if result.device else ""
    spent = (
        f"{plural(result.steps, 'step')} and {plural(result.episodes, 'rollout')}; "
        f"ended: {result.stopped}. {weights_words(result)} "
        f"{duration(result.wall_seconds)} of wall time{place}, "
        f"{duration(result.cpu_seconds)} of CPU time, at most "
        f"{result.peak_memory_mb:,.0f} MB of memory.\n"
    )
    size = f"{plural(metrics.tasks, 'task')}, {plural(metrics.rollouts, 'rollout')}"
    parts = [
        f"# {result.scenario}, trained through {config.get('framework', '?')}\n",
        spent,
        *([f"{machine}\n"] if machine else []),
        *effect_parts(result),
        *worse_parts(result, instructions),
        "## Before and after, on held-out tasks\n",
        f"{size} after training; 95 % intervals over tasks in brackets.\n",
        gains_table(rows(result.baseline, metrics, warm=result.warm_start)),
    ]
    if result.imitated is not None:
        parts += [f"Warm start: {result.imitated.words()}.\n"]
    if families := family_rows(result.baseline, metrics, result.warm_start):
        heading = "### Success by family of tasks, worst first\n"
        parts += [heading, gains_table(families)]
    for name, (before, after) in result.breakdown.items():
        heading = f"### {name[:1].upper()}{name[1:]}: {plural(after.tasks, 'task')}\n"
        warm = result.warm_breakdown.get(name)
        parts += [heading, gains_table(rows(before, after, BRIEF, warm))]
    if confusion is not None:
        heading = "## Tool needed (rows), tool called (columns), after training\n"
        parts += confusion_parts(confusion, heading)
    buckets = [("trained", f"{ledger.trained:,}")]
    for verb, found in (("masked", ledger.masked), ("dropped", ledger.dropped)):
        buckets += [(f"{verb}: {why}", f"{n:,}") for why, n in found.most_common()]
    parts += [
        "## Where every model call went\n",
        table(["bucket", "calls"], [*buckets, ("**all**", f"**{ledger.calls:,}**")]),
        *([f"Learned from: {trained_words(ledger.tokens)}.\n"] * bool(ledger.tokens)),
        *([f"{judging_words(ledger.judging)}\n"] if ledger.judging else []),
        *([f"On everyday questions: {moved.words()}.\n"] if moved is not None else []),
        *_roles(result),
        *_use(result),
        "## Settings\n",
        table(
            ["setting", "value"],
            [(k, f"`{v}`") for k, v in flattened(config).items()],
            left=2,
        ),
    ]
    return "\n".join(parts)


def effect_parts(result: TrainingResult) -> list[str]:
    """Return paragraphs on whether training helped, and on which metrics changed."""
    return [
        f"**{words}**\n" if style.startswith("bold") else f"{words}\n"
        for words, style in effect_lines(result)
    ]


def _use(result: TrainingResult) -> Iterator[str]:
    """Yield how to use the agent; if it is not better, what to do instead."""
    if steps := instead(result):
        yield f"## Next\n\n{NOT_BETTER}\n"
        yield "".join(f"- {step}\n" for step in steps)
        yield f"{saved_as(result.saved)}\n"
    else:
        yield f"## Use it\n\n{saved_as(result.saved)}\n"
        yield "```{}\n{}```\n".format(*use_of(result))


def _roles(result: TrainingResult) -> list[str]:
    """Return the tables of a team's roles; [] for a single agent."""
    parts = []
    if lines := ledger_lines(result.ledger):
        parts += ["## Where the calls of each role went\n", table(LEDGER_HEAD, lines)]
    if lines := metrics_lines(result.baseline, result.metrics):
        parts += ["## Each role\n", f"{CHANGES_NOTE}\n", table(METRICS_HEAD, lines)]
    return parts


def render_evaluation(found: Evaluation) -> str:
    """Return the Markdown report of an evaluation."""
    shown = values(found.metrics, *found.baselines.values())
    parts = [
        f"# {found.subject} on {found.scenario}\n",
        f"{_size(found)} 95 % intervals over tasks in brackets.\n",
        *(f"{note}\n" for note in found.notes),
        table(["", found.subject, *found.baselines], shown),
    ]
    if roles := metrics_lines(None, found.metrics):
        parts += ["## Each role\n", f"{METRICS_NOTE}\n", table(METRICS_HEAD, roles)]
    if families := family_lines(found.metrics):
        parts += ["## Successes by kind of task (pass^1)\n"]
        parts += [table(["kind", "pass^1", ""], families)]
    if found.calls:
        total = sum(found.calls.values())
        calls = [(kind.value, n, f"{n / total:.1%}") for kind, n in found.calls.items()]
        lines = [
            (name, f"{n:,}", part) for name, n, part in [*calls, ("all", total, "")]
        ]
        parts += ["## Tool calls, each in one class\n"]
        parts += [table(["class", "calls", "share"], lines)]
    if found.confusion is not None:
        heading = "## Tool needed (rows), tool called (columns)\n"
        parts += confusion_parts(found.confusion, heading)
    return "\n".join([*parts, _made(found)])


def confusion_parts(matrix: ConfusionMatrix, heading: str) -> list[str]:
    """Return a heading, and a confusion matrix as a Markdown table."""
    counts = matrix.counts
    needed, called, left_out = confusion_cells(matrix)
    cells = [(row, *(str(counts[row].get(c, 0)) for c in called)) for row in needed]
    parts = [heading, table(["needed", *called], cells)]
    return [*parts, f"{left_out}\n"] if left_out else parts


def render_comparison(before: Evaluation, after: Evaluation, found: Comparison) -> str:
    """Return the Markdown report of a comparison of two evaluations."""
    compared = rows(before.metrics, after.metrics, METRICS)
    names = (f"A: {before.subject}", f"B: {after.subject}", "B - A")
    size = (
        f"{plural(found.tasks, 'task')} on both sides; {_size(before)} 95 % intervals "
        "over tasks in brackets, those of differences paired by task.\n"
    )
    title = f"# {before.subject} and {after.subject} on {before.scenario}\n"
    said = f"{verdict(found)}\n"
    compared_table = gains_table(compared, names, left=1)
    notes = [f"{note}\n" for note in (*before.notes, *after.notes)]
    made = [_made(before), _made(after)]
    return "\n".join([title, size, *notes, compared_table, said, *made])


def _size(found: Evaluation) -> str:
    metrics = found.metrics
    dropped = f", {metrics.dropped} dropped" if metrics.dropped else ""
    return (
        f"{plural(metrics.tasks, 'task')} of the {found.split} split, seed "
        f"{found.seed}, {plural(metrics.rollouts, 'rollout')}{dropped}."
    )


def _made(found: Evaluation) -> str:
    where = f", answered by {found.endpoint}" if found.endpoint else ""
    return (
        f"{found.subject}: measured {found.created} with agentgym {found.agentgym}, "
        f"through {found.framework}{where}.\n"
    )


def gains_table(
    compared: Iterable[MetricRow],
    names: Sequence[str] = ("before", "after", "gain"),
    left: int = 3,
) -> str:
    """Return compared metrics as a Markdown table."""
    compared = list(compared)
    head = ["", *names]
    cells = [[r.label, r.before, r.after, r.full_gain] for r in compared]
    if any(row.warm for row in compared):
        head.insert(2, WARM)
        head += [f"by {WARM}", "by training"]
        for row, line in zip(compared, cells, strict=True):
            line.insert(2, row.warm)
            line += [row.warm_gain, row.own_gain]
    return table(head, cells, left)


def table(head: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; columns after the first ``left`` are right-aligned."""
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))
