"""Watch: find the best validation of a run, and warn about its training."""

from collections import Counter
from typing import Literal

from pydantic import Field

from agentgym.core.records import FrozenRecord, Record
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent

_TAKES_OVER = 0.6  # one tool's share of all calls from which on it is suspicious,
_GROWN = 1.5  # if the share has also grown by this factor since before training
_SETTLED = 3  # number of validations after which a family can count as unsolved
_LEARNED, _APART = 0.9, 0.1
"""Success rate in training from which on a fall of this size means overfitting."""
_MORE = 3  # times as many tasks to write against overfitting
_ENDLESS = 0.5  # share of rollouts that end at the limit of model calls


class Remark(FrozenRecord):
    """A warning about a run.

    Attributes:
        kind: ``right_tool``: the right tool is called less often than before training.
            ``one_tool``: most calls are of a single tool. ``no_end``: rollouts end at
            their limit of model calls. ``unsolved``: no attempt has solved some
            families (kinds) of tasks. ``overfit``: training tasks are solved, but
            validation tasks are not.
        text: The warning with its numbers.
    """

    kind: Literal["right_tool", "one_tool", "no_end", "unsolved", "overfit"]
    text: str


class Watch(Record):
    """The results of all validations so far; part of a run's state.

    Attributes:
        newest: Success rate and mean reward of the newest validation; None before the
            first.
        best: The highest mean of ``newest`` over two validations in a row, since the
            best of many single ones would often be best by chance.
        best_step: Step of the second of these; 0 before the first validation, and for
            the weights before any update.
        history: Step and success rate of each validation.
        solved: Families (kinds of tasks) with a success in at least one validation.
        remarks: The warnings of the newest validation.
    """

    newest: tuple[float, float] | None = None
    best: tuple[float, float] | None = None
    best_step: int = 0
    history: list[tuple[int, float]] = Field(default_factory=list)
    solved: list[str] = Field(default_factory=list)
    remarks: list[Remark] = Field(default_factory=list)

    def add(
        self,
        step: int,
        found: Metrics,
        baseline: Metrics,
        trained: tuple[float, int] | None = None,
    ) -> list[Remark]:
        """Record a step's validation, and return its new warnings.

        A warning is new if the previous validation had no warning of this kind.
        ``baseline`` are the metrics of the policy before its first update. After a warm
        start, they were measured on the same validation tasks; otherwise on held-out
        tasks. ``trained`` are the success rate in training and the number of training
        tasks if these come again and again; else None.
        """
        self.history.append((step, found.pass_1.value))
        self.solved = sorted(
            {t.family for t in found.by_task if t.successes}.union(self.solved)
        )
        newest = (found.pass_1.value, found.reward.value)
        before = self.newest or (baseline.pass_1.value, baseline.reward.value)
        score = ((before[0] + newest[0]) / 2, (before[1] + newest[1]) / 2)
        self.newest = newest
        if self.best is None or score > self.best:
            self.best, self.best_step = score, step
        old = {remark.kind for remark in self.remarks}
        self.remarks = [
            *_worse_choice(found, baseline),
            *_endless(found),
            *self._unsolved(found),
            *_overfit(found, trained),
        ]
        return [remark for remark in self.remarks if remark.kind not in old]

    def _unsolved(self, found: Metrics) -> list[Remark]:
        every = {task.family for task in found.by_task}
        never = sorted(every.difference(self.solved))
        if len(self.history) < _SETTLED or not never:
            return []
        text = f"{len(never)} of {len(every)} families of tasks were never solved on "
        return [Remark(kind="unsolved", text=f"{text}validation: {', '.join(never)}")]


def _worse_choice(found: Metrics, baseline: Metrics) -> list[Remark]:
    """Return warnings if tools are chosen worse than before training."""
    remarks = []
    now, before = found.right_tool, baseline.right_tool
    if now.n and before.n and now.high < before.value and now.value < before.low:
        text = (
            f"the right tool is called for {percent(now.value)} of the calls needed, "
            f"{percent(before.value)} before training"
        )
        remarks.append(Remark(kind="right_tool", text=text))
    calls, earlier = _shares(found), _shares(baseline)
    tool, share = max(calls.items(), key=lambda item: item[1], default=("", 0.0))
    grown = share >= _TAKES_OVER and share > _GROWN * earlier.get(tool, 0.0)
    if grown and not (now.n and now.value > before.value):
        text = (
            f"{tool} takes {percent(share)} of all tool calls, "
            f"{percent(earlier.get(tool, 0.0))} before training"
        )
        remarks.append(Remark(kind="one_tool", text=text))
    return remarks


def _overfit(found: Metrics, trained: tuple[float, int] | None) -> list[Remark]:
    """Return a warning if training tasks are solved much more often than others."""
    success, tasks = trained or (0.0, 0)
    if success < _LEARNED or found.pass_1.high > success - _APART:
        return []
    text = (
        f"{percent(success)} of the attempts at the {tasks:,} training tasks succeed, "
        f"{percent(found.pass_1.value)} at validation tasks: the policy learns these "
        f"tasks by heart. Write about {_MORE * tasks:,} more, in other words and with "
        "other values (`agentgym tasks vary` makes variants)"
    )
    return [Remark(kind="overfit", text=text)]


def _endless(found: Metrics) -> list[Remark]:
    """Return a warning if most rollouts end at their limit of model calls."""
    attempts = sum(task.attempts for task in found.by_task)
    cut = sum(role.cut for task in found.by_task for role in task.roles.values())
    if not attempts or cut / attempts < _ENDLESS:
        return []
    text = f"{percent(cut / attempts)} of rollouts end at their limit of model calls, "
    return [Remark(kind="no_end", text=f"{text}without an answer")]


def _shares(metrics: Metrics) -> dict[str, float]:
    """Return each tool's share of all tool calls, 0..1."""
    counts: Counter[str] = Counter()
    for task in metrics.by_task:
        counts.update(task.calls)
    return {name: count / counts.total() for name, count in counts.items()}
