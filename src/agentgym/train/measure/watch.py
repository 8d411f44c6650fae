"""Watch: find the best validation of a run, and warn about its training."""

from collections import Counter
from typing import Literal

from pydantic import BaseModel, Field

from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent

_TAKES_OVER = 0.6  # one tool's share of all calls from which on it is suspicious,
_GROWN = 1.5  # if the share has also grown by this factor since before training
_SETTLED = 3  # number of validations after which a family can count as unsolved
_ENDLESS = 0.5  # share of rollouts that end at the limit of model calls


class Remark(BaseModel, frozen=True, extra="forbid"):
    """A warning about a run.

    Attributes:
        kind: ``stalled``: success does not rise. ``right_tool``: the right tool is
            called less often than before training. ``one_tool``: most calls are of a
            single tool. ``no_end``: rollouts end at their limit of model calls.
            ``unsolved``: no attempt has solved some families (kinds) of tasks.
        text: The warning with its numbers.
    """

    kind: Literal["stalled", "right_tool", "one_tool", "no_end", "unsolved"]
    text: str


class Watch(BaseModel, extra="forbid"):
    """The results of all validations so far; part of a run's state.

    Attributes:
        best: Success rate and mean reward of the best validation; None before the
            first.
        best_step: Step of the best validation; 0 before the first, and for the weights
            before any update.
        strikes: Number of validations since the success rate last rose. A validation
            counts twice if tools were chosen worse than before training.
        looks: Number of validations so far.
        solved: Families (kinds of tasks) with a success in at least one validation.
        remarks: The warnings of the newest validation.
    """

    best: tuple[float, float] | None = None
    best_step: int = 0
    strikes: int = 0
    looks: int = 0
    solved: list[str] = Field(default_factory=list)
    remarks: list[Remark] = Field(default_factory=list)

    def add(
        self, step: int, found: Metrics, baseline: Metrics, patience: int
    ) -> list[Remark]:
        """Record a step's validation, and return its new warnings.

        A warning is new if the previous validation had no warning of this kind.
        ``baseline`` are the metrics of the policy before its first update. After a warm
        start, they were measured on the same validation tasks; otherwise on held-out
        tasks. ``patience`` is the value of :attr:`strikes` that ends the run; the
        warning ``stalled`` comes at half of this value.
        """
        self.looks += 1
        self.solved = sorted(
            {t.family for t in found.by_task if t.successes}.union(self.solved)
        )
        worse = [*_worse_choice(found, baseline)]
        score = (found.pass_1.value, found.reward.value)
        self.strikes += 1 + bool(worse)
        if self.best is None or score[0] > self.best[0]:
            self.strikes = 0
        if self.best is None or score > self.best:
            self.best, self.best_step = score, step
        old = {remark.kind for remark in self.remarks}
        self.remarks = [
            *self._stalled(patience),
            *worse,
            *_endless(found),
            *self._unsolved(found),
        ]
        return [remark for remark in self.remarks if remark.kind not in old]

    def _stalled(self, patience: int) -> list[Remark]:
        if self.best is None or self.strikes < max(2, patience // 2):
            return []
        text = "success on validation tasks does not rise above "
        return [Remark(kind="stalled", text=f"{text}{percent(self.best[0])}")]

    def _unsolved(self, found: Metrics) -> list[Remark]:
        every = {task.family for task in found.by_task}
        never = sorted(every.difference(self.solved))
        if self.looks < _SETTLED or not never:
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
