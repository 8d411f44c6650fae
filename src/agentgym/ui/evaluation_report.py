"""An evaluation, or a comparison of two, as Markdown."""

from collections.abc import Sequence

from agentgym.evaluate.calls import ConfusionMatrix
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.result import Evaluation
from agentgym.ui.comparison import all_rows, values
from agentgym.ui.evaluation import confusion_columns, confusion_rows, verdict
from agentgym.ui.words import plural


def render_evaluation(found: Evaluation) -> str:
    """Return the Markdown report of an evaluation."""
    names = [found.subject, *found.baselines]
    rows = values(found.metrics, *found.baselines.values())
    parts = [
        f"# {found.subject} on {found.scenario}\n",
        f"{_size(found)} 95 % intervals over tasks in brackets.\n",
        _table(["", *names], rows),
    ]
    if found.calls:
        total = sum(found.calls.values())
        calls = [
            (k.value, f"{n:,}", f"{n / total:.1%}") for k, n in found.calls.items()
        ]
        parts += ["## Tool calls, each in one class\n"]
        parts += [
            _table(["class", "calls", "share"], [*calls, ("all", f"{total:,}", "")])
        ]
    if found.confusion is not None:
        parts += ["## Tool needed (rows), tool called (columns)\n"]
        parts += [_confusion(found.confusion)]
    return "\n".join([*parts, _made(found)])


def render_comparison(before: Evaluation, after: Evaluation, found: Comparison) -> str:
    """Return the Markdown report of a comparison."""
    rows = [
        (r.label, r.before, r.after, r.full_gain)
        for r in all_rows(before.metrics, after.metrics)
    ]
    size = (
        f"{plural(found.tasks, 'task')} on both sides; {_size(before)} 95 % intervals "
        "over tasks in brackets, those of differences paired by task.\n"
    )
    parts = [
        f"# {before.subject} and {after.subject} on {before.scenario}\n",
        size,
        _table(["", f"A: {before.subject}", f"B: {after.subject}", "B - A"], rows),
        f"{verdict(found)}\n",
        _made(before),
        _made(after),
    ]
    return "\n".join(parts)


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


def _confusion(matrix: ConfusionMatrix) -> str:
    columns = confusion_columns(matrix)
    rows = [
        (row, *(str(matrix.counts[row].get(column, 0)) for column in columns))
        for row in confusion_rows(matrix)
    ]
    return _table(["needed", *columns], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
