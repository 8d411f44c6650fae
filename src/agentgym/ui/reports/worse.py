"""Report families (kinds) of tasks, and out-of-vocabulary tasks, that got worse."""

from collections.abc import Mapping
from typing import NamedTuple

from agentgym.evaluate.compare import Change, family_changes, holm, paired
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent, plural
from agentgym.evaluate.words import p_words
from agentgym.train.result import TrainingResult

UNUSUAL = "out-of-vocabulary"
"""Name of the held-out set of tasks whose wording does not occur in training."""
_MOST = 10
_MOST_TEXT = 160


class LostCalls(NamedTuple):
    """A task with fewer right calls after training than before."""

    task_id: str
    before: float
    after: float


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


def lost_calls(before: Metrics, after: Metrics) -> list[LostCalls]:
    """Return the tasks with fewer right calls than before, the largest loss first."""
    lost = []
    for old, new in paired(before, after):
        (made, of), (made_now, of_now) = (
            task.pair("right_arguments", 1) for task in (old, new)
        )
        if of and of_now and made_now / of_now < made / of:
            lost.append(LostCalls(old.task_id, made / of, made_now / of_now))
    return sorted(lost, key=lambda each: (each.after - each.before, each.task_id))


def worse_parts(
    result: TrainingResult, instructions: Mapping[str, str] | None = None
) -> list[str]:
    """Return the report's section on results that got worse; [] if none did."""
    parts = []
    if fallen := fallen_families(result.baseline, result.metrics):
        parts += [_families(fallen)]
    if pair := result.breakdown.get(UNUSUAL):
        lost = lost_calls(*pair)
        if lost:
            parts += [_wording(lost, pair, instructions or {})]
    return ["## Results that got worse\n", *parts] if parts else []


def _families(fallen: list[tuple[Change, bool]]) -> str:
    real = sum(is_real for _, is_real in fallen)
    said = f"Success fell in {plural(len(fallen), 'family', 'families')} of tasks"
    said += f", beyond chance in {real}." if real else ", nowhere beyond chance."
    rows = [
        f"| {each.name} | {percent(each.before)} | {percent(each.after)} | "
        f"{p_words(each.p_value)} | {'yes' if is_real else 'no'} |\n"
        for each, is_real in fallen
    ]
    head = "| family | before | after | exact test | beyond chance |\n"
    head += "| --- | ---: | ---: | --- | --- |\n"
    note = "Beyond chance: with Holm's correction for the number of families.\n"
    return "\n".join([f"{said}\n", "".join([head, *rows]), note])


def _wording(
    lost: list[LostCalls],
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
    head = "| task | right calls before | after | wording |\n"
    head += "| --- | ---: | ---: | --- |\n"
    rows = [
        f"| {each.task_id} | {percent(each.before)} | {percent(each.after)} | "
        f"{_cell(instructions.get(each.task_id, ''))} |\n"
        for each in lost[:_MOST]
    ]
    more = len(lost) - _MOST
    rest = [f"And {plural(more, 'other task')}.\n"] if more > 0 else []
    return "\n".join([said, "".join([head, *rows]), *rest])


def _cell(text: str) -> str:
    """Return a text as one short line, escaped for a cell of a Markdown table."""
    line = " ".join(text.split())
    short = line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"
    return short.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
