"""A finished run as Markdown, for people who were not there."""

from agentgym.train.result import TrainingResult
from agentgym.ui.comparison import Row, breakdown_rows, rows
from agentgym.ui.words import duration, plural

_USE = """```python
from agentgym import TrainedAgent

agent = TrainedAgent.load("{name}").to_langchain()
```
"""


def render_report(result: TrainingResult) -> str:
    """Return the Markdown report of a run."""
    config = result.config
    metrics, ledger = result.metrics, result.ledger
    spent = (
        f"{plural(result.steps, 'step')} and {plural(result.episodes, 'episode')}; "
        f"ended: {result.stopped}. {duration(result.wall_seconds)} of wall time, "
        f"{duration(result.cpu_seconds)} of CPU time, at most "
        f"{result.peak_memory_mb:,.0f} MB of memory.\n"
    )
    size = (
        f"{plural(metrics.tasks, 'task')}, {plural(metrics.rollouts, 'rollout')} after "
        "training; 95 % intervals over tasks in brackets.\n"
    )
    title = f"# {result.scenario}, trained through {config.get('framework', '?')}\n"
    heading = "## Before and after, on held-out tasks\n"
    parts = [title, spent, heading, size, _table(rows(result.baseline, metrics))]
    for name, (before, after) in result.breakdown.items():
        heading = f"### {name[:1].upper()}{name[1:]}: {plural(after.tasks, 'task')}\n"
        parts += [heading, _table(breakdown_rows(before, after))]
    buckets = [("trained", ledger.trained)]
    for verb, found in (("masked", ledger.masked), ("dropped", ledger.dropped)):
        buckets += [(f"{verb}: {why}", count) for why, count in found.most_common()]
    parts += [
        "## Where every model call went\n",
        "| bucket | calls |\n|---|---:|",
        *(f"| {bucket} | {count:,} |" for bucket, count in buckets),
        f"| **all** | **{ledger.calls:,}** |\n",
        "## Use it\n",
        _USE.format(name=result.artifacts.saved_as),
        "## Settings\n",
        "| setting | value |\n|---|---|",
        *(f"| {key} | `{value}` |" for key, value in config.items()),
    ]
    return "\n".join(parts) + "\n"


def _table(compared: list[Row]) -> str:
    lines = ["| | before | after | gain |", "|---|---|---|---:|"]
    lines += [
        f"| {r.label} | {r.before} | {r.after} | {r.full_gain} |" for r in compared
    ]
    return "\n".join(lines) + "\n"
