"""Write a run's report into its folder, as Markdown and as one HTML file."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.files import write_atomically
from agentgym.errors import AgentGymError
from agentgym.evaluate.call_classes import ConfusionMatrix
from agentgym.evaluate.compare import Change, family_changes, holm, paired
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, percent, plural
from agentgym.evaluate.ranker import judging_words
from agentgym.evaluate.rows import p_words
from agentgym.evaluate.shown import (
    CHANGES_NOTE,
    LEDGER_HEAD,
    METRICS_HEAD,
    NOT_BETTER,
    ShownResult,
)
from agentgym.plugins.view.opened_run import OpenedRun
from agentgym.rollout.store.reader import StoreReader
from agentgym.train.result import TrainingResult, use_of, weights_words
from agentgym.train.run_folder import RunFolder
from agentgym.train.status import bill
from agentgym.ui.layout import trained_words
from agentgym.ui.reports import (
    confusion_parts,
    effect_parts,
    gains_table,
    html_page,
    table,
)

# Name of the held-out set of tasks whose wording does not occur in training.
UNUSUAL = "out-of-vocabulary"
_MOST = 10
_MOST_TEXT = 160
_WIDTH, _HEIGHT = 520, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 28
_ROW = 22
_NAMES = 190
_COLOURS = 4
_MEAN = 10
_CHARTS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("Success and tool reliability", ("success_rate", "tool_reliability"), True),
    ("Right tool and arguments", ("right_tool", "right_arguments"), True),
    ("Reward", ("reward",), False),
    ("Sampled tokens of a step", ("sampled_tokens",), False),
    ("KL to the policy that sampled (nats)", ("kl",), False),
    ("Entropy (nats)", ("entropy",), False),
)
_VALIDATED = ("pass_1", "right_arguments", "tool_reliability")


def write_reports(result: TrainingResult) -> None:
    """Write ``report.md`` and ``report.html`` into the folder of a finished run."""
    run = RunFolder(result.artifacts.run)
    text = run_markdown(run, result)
    write_atomically(run.path / "report.md", text)
    write_atomically(run.path / "report.html", _page(run, result, text))


def run_markdown(run: RunFolder, result: TrainingResult) -> str:
    """Return the report of a finished run as Markdown."""
    requests: dict[str, str] = {}
    confusion: ConfusionMatrix | None = None
    with suppress(AgentGymError):
        if UNUSUAL in result.breakdown:
            store = StoreReader(run.path / "rollouts.db")
            requests = store.instructions("out_of_vocabulary")
    with suppress(AgentGymError, ValueError):
        confusion = OpenedRun(run).confusion("after")["matrix"]
    return render_report(result, bill(run.path), requests, confusion)


def run_html(run: RunFolder, status: str) -> str:
    """Return a run's report as HTML; without a result, only status and curves."""
    result = TrainingResult.load(run.path)
    text = f"# {run.path.name}\n\nThis run has no result: its status is {status}.\n"
    return _page(run, result, run_markdown(run, result) if result else text)


def _page(run: RunFolder, result: TrainingResult | None, text: str) -> str:
    steps: Sequence[dict[str, Any]] = ()
    with suppress(AgentGymError):
        steps = run.metrics()
    return html_page(text, run_pictures(result, steps))


def render_report(
    result: TrainingResult,
    machine: str = "",
    instructions: Mapping[str, str] | None = None,
    confusion: ConfusionMatrix | None = None,
) -> str:
    """Return the Markdown report of a run."""
    config, metrics, ledger = result.config, result.metrics, result.ledger
    moved, shown = result.forgetting, result.shown
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
        gains_table(shown.main.rows),
    ]
    if shown.warm_start:
        parts += [f"{shown.warm_start}\n"]
    if shown.families:
        heading = "### Success by family of tasks, worst first\n"
        parts += [heading, gains_table(shown.families)]
    for name, further in shown.further.items():
        tasks = plural(result.breakdown[name][1].tasks, "task")
        heading = f"### {name[:1].upper()}{name[1:]}: {tasks}\n"
        parts += [heading, gains_table(further.rows)]
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
        *_roles(shown),
        *_use(result, shown),
        "## Settings\n",
        table(
            ["setting", "value"],
            [(k, f"`{v}`") for k, v in TrainingConfig.flat(config).items()],
            left=2,
        ),
    ]
    return "\n".join(parts)


def _use(result: TrainingResult, shown: ShownResult) -> Iterator[str]:
    """Yield how to use the agent; if it is not better, what to do instead."""
    if shown.next_steps:
        yield f"## Next\n\n{NOT_BETTER}\n"
        yield "".join(f"- {step}\n" for step in shown.next_steps)
        yield f"{shown.saved}\n"
    else:
        yield f"## Use it\n\n{shown.saved}\n"
        yield "```{}\n{}```\n".format(*use_of(result))


def _roles(shown: ShownResult) -> list[str]:
    """Return the tables of a team's roles; [] for a single agent."""
    parts = []
    if lines := shown.role_calls:
        parts += ["## Where the calls of each role went\n", table(LEDGER_HEAD, lines)]
    if lines := shown.role_metrics:
        parts += ["## Each role\n", f"{CHANGES_NOTE}\n", table(METRICS_HEAD, lines)]
    return parts


def fallen_families(before: Metrics, after: Metrics) -> list[tuple[Change, bool]]:
    """Return the families (kinds) of tasks whose success fell, the largest loss first.

    The bool is whether the loss is significant, with Holm's correction for the number
    of families.
    """
    changes = family_changes(before, after)
    real = holm([change.p_value for change in changes])
    fallen = [
        (each, is_real)
        for each, is_real in zip(changes, real, strict=True)
        if each.after < each.before
    ]
    return sorted(fallen, key=lambda row: (row[0].after - row[0].before, row[0].name))


def lost_calls(before: Metrics, after: Metrics) -> list[tuple[str, float, float]]:
    """Return each task with fewer right calls than before, the largest loss first.

    A task has its id, and the share of right calls before and after training.
    """
    lost = []
    for old, new in paired(before, after):
        (made, of), (made_now, of_now) = (
            task.pair("right_arguments", 1) for task in (old, new)
        )
        if of and of_now and made_now / of_now < made / of:
            lost.append((old.task_id, made / of, made_now / of_now))
    return sorted(lost, key=lambda task: (task[2] - task[1], task[0]))


def worse_parts(
    result: TrainingResult, instructions: Mapping[str, str] | None = None
) -> list[str]:
    """Return the report's section on results that got worse; [] if none did."""
    parts = []
    if fallen := fallen_families(result.baseline, result.metrics):
        parts += [_families(fallen)]
    pair = result.breakdown.get(UNUSUAL)
    if pair and (lost := lost_calls(*pair)):
        parts += [_wording(lost, pair, instructions or {})]
    return ["## Results that got worse\n", *parts] if parts else []


def _families(fallen: list[tuple[Change, bool]]) -> str:
    real = sum(is_real for _, is_real in fallen)
    said = f"Success fell in {plural(len(fallen), 'family', 'families')} of tasks"
    said += f", beyond chance in {real}." if real else ", nowhere beyond chance."
    cells = [
        (
            *(each.name, percent(each.before), percent(each.after)),
            *(p_words(each.p_value), "yes" if is_real else "no"),
        )
        for each, is_real in fallen
    ]
    head = ("family", "before", "after", "exact test", "beyond chance")
    note = "Beyond chance: with Holm's correction for the number of families.\n"
    return "\n".join([f"{said}\n", table(head, cells), note])


def _wording(
    lost: Sequence[tuple[str, float, float]],
    pair: tuple[Metrics, Metrics],
    instructions: Mapping[str, str],
) -> str:
    old, new = (percent(side.right_arguments.value) for side in pair)
    said = (
        f"Of {plural(pair[1].tasks, 'task')} in out-of-vocabulary wording, {len(lost)} "
        f"lost right calls; over all of them right arguments went from {old} to {new}. "
        "Training has not seen these words: give it more forms of wording, or end "
        "earlier.\n"
    )
    cells = [
        (task, percent(made), percent(made_now), _cell(instructions.get(task, "")))
        for task, made, made_now in lost[:_MOST]
    ]
    more = len(lost) - _MOST
    rest = [f"And {plural(more, 'other task')}.\n"] if more > 0 else []
    head = ("task", "right calls before", "after", "wording")
    return "\n".join([said, table(head, cells, left=4), *rest])


def _cell(text: str) -> str:
    """Return a text as one short line, escaped for a cell of a Markdown table."""
    line = " ".join(text.split())
    short = line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"
    return short.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def line_chart(
    title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str], is_share: bool
) -> str:
    """Return a chart of values by training step as HTML; empty without values.

    A point is the mean of up to ten steps. ``rows`` have ``step`` and the values by
    name. If ``is_share`` is true, the axis goes from 0 to 100 %.
    """
    steps = [int(row["step"]) for row in rows]
    lines = {
        name.replace("_", " ").replace("pass 1", "success"): _means(rows, name)
        for name in names
    }
    every = [value for points in lines.values() for _, value in points]
    if not every:
        return ""
    low, high = 0.0, 1.0
    if not is_share:
        low, high = min(every), max(every)
        margin = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
        low, high = low - margin, high + margin
    first, last = steps[0], max(steps[-1], steps[0] + 1)

    def x(step: float) -> float:
        share = (step - first) / (last - first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = (value - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for place in range(5):
        value = low + place * (high - low) / 4
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        text = f"{100 * value:.0f} %" if is_share else text
        parts.append(_rule(_LEFT, _WIDTH - _RIGHT, y(value), y(value)))
        parts.append(_text(_LEFT - 6, y(value) + 4, text, "end"))
    for step in {first, (first + steps[-1]) // 2, steps[-1]}:
        parts.append(_text(x(step), _HEIGHT - 8, str(step), "middle"))
    keys, said = [], []
    for number, (name, values) in enumerate(lines.items()):
        colour = f"c{number % _COLOURS}"
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in values)
        parts.append(f'<polyline class="line {colour}" points="{points}"/>')
        keys.append(f'<span class="key"><i class="{colour}"></i>{escape(name)}</span>')
        if values:
            said.append(f"{name} from {values[0][1]:.3g} to {values[-1][1]:.3g}")
    return _figure(title, parts, _HEIGHT, f"{title}: {', '.join(said)}", " ".join(keys))


def family_chart(title: str, families: Sequence[tuple[str, Estimate, Estimate]]) -> str:
    """Draw a chart of success by family (kind) of tasks, with confidence intervals."""
    if not families:
        return ""
    height = _ROW * len(families) + _TOP + _BOTTOM

    def x(share: float) -> float:
        return _NAMES + share * (_WIDTH - _NAMES - _RIGHT - 12)

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_rule(x(share), x(share), _TOP, height - _BOTTOM))
        parts.append(_text(x(share), height - 8, f"{100 * share:.0f} %", "middle"))
    for row, (name, before, after) in enumerate(families):
        middle = _TOP + _ROW * (row + 0.5)
        parts.append(_text(_NAMES - 8, middle + 4, name[:28], "end"))
        kind = "after worse" if after.value < before.value else "after"
        for found, style, y in (
            (before, "before", middle - 3),
            (after, kind, middle + 3),
        ):
            parts.append(_rule(x(found.low), x(found.high), y, y, f"span {style}"))
            at = f'cx="{x(found.value):.1f}" cy="{y}" r="4"'
            parts.append(f'<circle class="{style}" {at}/>')
    said = "; ".join(
        f"{name}: {100 * before.value:.0f} % before, {100 * after.value:.0f} % after"
        for name, before, after in families
    )
    legend = '<span class="key">○ before</span> <span class="key">● after</span>'
    return _figure(title, parts, height, f"{title}. {said}", legend)


def _means(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Return each step with the mean of a value over up to ten steps."""
    found = []
    for end in range(1, len(rows) + 1):
        near = [row.get(name) for row in rows[max(0, end - _MEAN) : end]]
        known = [v for v in near if v is not None and math.isfinite(v)]
        if known:
            found.append((int(rows[end - 1]["step"]), sum(known) / len(known)))
    return found


def _rule(x1: float, x2: float, y1: float, y2: float, kind: str = "grid") -> str:
    ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}>{escape(text)}</text>"


def _figure(
    title: str, parts: Sequence[str], height: float, said: str, legend: str
) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(said)}">{"".join(parts)}</svg>'
        f'<div class="legend">{legend}</div></figure>\n'
    )


def run_pictures(
    result: TrainingResult | None, steps: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the charts of a run as HTML: curves, and success by family of tasks."""
    measured = [
        {"step": step["step"]}
        | {name: step["validation"][name]["value"] for name in _VALIDATED}
        for step in steps
        if step.get("validation")
    ]
    pictures = [
        line_chart(title, steps, names, is_share)
        for title, names, is_share in _CHARTS
        if steps
    ]
    if measured:
        pictures.append(line_chart("Validation tasks", measured, _VALIDATED, True))
    if result is not None:
        old = result.baseline.family_success()
        new = result.metrics.family_success()
        both = [(name, old[name], new[name]) for name in new if name in old]
        both.sort(key=lambda row: (row[2].value - row[1].value, row[0]))
        title = "Success by family of tasks, with 95 % intervals"
        pictures.append(family_chart(title, both))
    return [picture for picture in pictures if picture]
