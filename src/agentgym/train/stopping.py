"""Stopping: decide after each validation whether a run should end, by one rule.

**Does the goal hold?** Every validation rollout is a bet that a metric is above its
minimum ``g``: a share ``x`` of 0..1 multiplies the capital by ``1 + c (x - g) / g``.
As long as the policy is below the goal, the capital cannot be expected to grow, however
often one looks and however the policy changes. So it reaches ``1 / ALPHA`` with a
probability of at most ``ALPHA`` (Ville's inequality; testing by betting: Waudby-Smith
and Ramdas, arXiv:2010.09686). Bets begin after the first validation that reached the
goal, which costs nothing, since the choice uses the past alone.

**Can it still rise?** The newest quarter of the steps is compared with the quarter
before, and this one with the quarter before it, in each family (kind of task) apart:
families differ much more than the attempts within them. Learning curves flatten, so the
ratio of these two gains is the ratio by which gains shrink. It extrapolates the upper
end of the newest gain's interval to the steps to come.

Besides validations, a step's rollouts of tasks that the run has not trained on yet
count for the second question. The policy that made them is that of the step. They are
compared among themselves, since attempts vary more in training.

``benchmarks/stopping.py`` measures both answers on simulated runs.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from pydantic import Field

from agentgym.core.records import FrozenRecord, Record
from agentgym.evaluate.metrics import MetricName, Metrics, TaskResult

ALPHA = 0.05
"""Largest probability of ending with "goal reached" although the goal does not hold."""
ENOUGH = 0.03
"""A run ends if success can rise by at most this in half as many steps as it had."""
_LEAST_LOOKS = 4
"""Least number of validations before a run may end for lack of improvement."""
_FLAT_SHARE = 0.3
"""Share of the budget after which a run without any improvement ends."""
_ERRORS = 1.0
"""Number of standard errors that are added to the newest gain."""
_LIKELY, _BEYOND_CHANCE = 1.0, 2.0
"""Numbers of standard errors from which on a gain is likely real, or beyond chance."""
_IDLE_SHARE, _IDLE_STEPS, _HOPELESS_STEPS = 0.05, 10, 30
"""A run ends if at most this share of the groups of so many steps had a signal, and the
others solved their tasks; after more steps if they failed, since a first success may
come."""
_STAKES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Shares of the capital that are lost with a failure; the capital is split evenly."""

_COLLAPSE_STEPS, _COLLAPSED = 3, 0.2
"""A run ends if so many newest steps called the right tools at most at this share of
the rate of the first ones. It is small, since later steps prefer tasks that fail."""

End = Literal["goal", "out_of_reach", "settled", "no_signal", "collapsed"]
"""Why a run ends before its budget does.

``goal``: the goal holds. ``out_of_reach``: it cannot hold within the budget.
``settled``: validation has stopped rising. ``no_signal``: attempts at training tasks
all earn the same, so that nothing is left to learn from them. ``collapsed``: the policy
has almost stopped calling the right tools.
"""
ENDS: dict[End, str] = {
    "goal": "the goal is reached",
    "out_of_reach": "the goal is out of reach within the budget",
    "settled": "validation has stopped rising",
    "no_signal": "nothing is left to learn from the training tasks",
    "collapsed": "the policy has almost stopped calling the right tools",
}
SPENT, TIME_SPENT = "budget spent", "time spent"
Goal = Mapping[MetricName, float]
"""The minimum of each metric, 0..1."""
Shares = dict[str, tuple[float, int]]
"""For each family: the sum of a metric's shares over tasks, and the number of tasks."""


class Sample(FrozenRecord):
    """The shares that one policy reached, by metric and family.

    Attributes:
        step: Number of updates that the policy has had.
        trained: Whether these are rollouts of a training step; else of a validation.
    """

    step: int
    trained: bool
    shares: dict[MetricName, Shares]

    @classmethod
    def of(
        cls,
        step: int,
        tasks: Sequence[TaskResult],
        metrics: Iterable[MetricName],
        *,
        trained: bool = False,
        by_task: bool = False,
    ) -> "Sample":
        """Add up the results of tasks; ``by_task`` makes each task a family."""
        shares: dict[MetricName, Shares] = {}
        for metric in metrics:
            found: dict[str, list[float]] = defaultdict(list)
            for task in tasks:
                key = task.task_id if by_task else task.family
                found[key] += _shares([task], metric)
            shares[metric] = {key: (sum(f), len(f)) for key, f in found.items() if f}
        return cls(step=step, trained=trained, shares=shares)


class Bets(Record):
    """The test whether a metric's mean is at least ``least``, which is above 0.

    Attributes:
        capitals: Logarithm of the capital of each stake in :data:`_STAKES`.
    """

    least: float
    capitals: list[float] = Field(default_factory=lambda: [0.0] * len(_STAKES))

    def add(self, shares: Iterable[float]) -> None:
        """Bet on each of a validation's shares, 0..1."""
        for share in shares:
            edge = (share - self.least) / self.least
            for number, stake in enumerate(_STAKES):
                self.capitals[number] += math.log1p(stake * edge)

    @property
    def is_won(self) -> bool:
        """Whether the mean capital has reached ``1 / ALPHA``."""
        top = max(self.capitals)
        mean = sum(math.exp(c - top) for c in self.capitals) / len(self.capitals)
        return top + math.log(mean) >= math.log(1 / ALPHA)


class Stopping(Record):
    """Measurements of a run so far, to decide when it should end; saved with the run.

    Attributes:
        samples: The measurement before the first step, the validations, and the
            training rollouts of tasks that were new to the run.
        bets: The test of each metric of the goal.
        in_sight: Whether the newest validation reached the goal.
        signals: For each step, the number of groups with a training signal, of those
            that had none since they solved their tasks, and of all.
        right_tool: For each step, the share of needed calls whose tool was called;
            empty if it is not known which calls are needed.
    """

    samples: list[Sample] = Field(default_factory=list)
    bets: dict[MetricName, Bets] = Field(default_factory=dict)
    in_sight: bool = False
    signals: list[tuple[int, int, int]] = Field(default_factory=list)
    right_tool: list[float] = Field(default_factory=list)

    def add_step(
        self,
        step: int,
        new: Sequence[TaskResult],
        goal: Goal,
        signals: tuple[int, int, int],
    ) -> None:
        """Record a step's rollouts of tasks that the run had not trained on before.

        ``step`` is the number of updates that the policy had before this one, and
        ``signals`` an entry of :attr:`signals`.
        """
        self.samples.append(Sample.of(step, new, _metrics(goal), trained=True))
        self.signals.append(signals)

    def add_validation(
        self, step: int, found: Metrics, goal: Goal, *, by_task: bool = False
    ) -> None:
        """Record a validation; ``by_task`` if its tasks are always the same."""
        sample = Sample.of(step, found.by_task, _metrics(goal), by_task=by_task)
        self.samples.append(sample)
        if self.in_sight:
            for metric, least in goal.items():
                bets = self.bets.setdefault(metric, Bets(least=least))
                bets.add(_shares(found.by_task, metric))
        self.in_sight = all(found[metric] >= least for metric, least in goal.items())

    def has_collapsed(self, before: float) -> bool:
        """Return whether the newest steps hardly called the right tools any more.

        ``before`` is the share of needed calls whose tool was called before training.
        """
        first = self.right_tool[:_COLLAPSE_STEPS]
        newest = self.right_tool[_COLLAPSE_STEPS:][-_COLLAPSE_STEPS:]
        if len(newest) < _COLLAPSE_STEPS:
            return False
        return fmean(newest) < _COLLAPSED * min(fmean(first), before)

    def end(
        self, step: int, left: int, goal: Goal, *, must_reach: bool = False
    ) -> End | None:
        """Return why the run should end after ``step`` updates; None if it goes on.

        ``left`` is the number of steps that the budget still allows. ``must_reach``
        ends a run that cannot reach the goal any more.
        """
        if self.in_sight and all(m in self.bets and self.bets[m].is_won for m in goal):
            return "goal"
        if left and self._is_idle(step):
            return "no_signal"
        if left and self._was_solved(goal):
            return "settled"
        looks = sum(not sample.trained for sample in self.samples) - 1
        if not left or looks < _LEAST_LOOKS:
            return None
        metrics = _metrics(goal)
        errors = max(self._improvement(metric, step) for metric in metrics)
        is_late = step >= _FLAT_SHARE * (step + left)
        if is_late and errors < _LIKELY:
            return "settled"
        if not is_late and errors < _BEYOND_CHANCE:
            return None
        if must_reach and any(
            self._level(m, step) + self.most_gain(m, step, left) < least
            for m, least in goal.items()
        ):
            return "out_of_reach"
        rises = [self.most_gain(metric, step, step / 2) for metric in metrics]
        return "settled" if max(rises) < ENOUGH else None

    def most_gain(self, metric: MetricName, step: int, horizon: float) -> float:
        """Return an upper bound for a metric's gain in ``horizon`` further steps."""
        quarter = step / 4
        gain, variance = self._rise(metric, step - quarter, quarter)
        before, _ = self._rise(metric, step - 2 * quarter, quarter)
        most = gain + _ERRORS * math.sqrt(variance)
        if most <= 0:
            return 0.0
        ratio = min(1.0, most / before) if before > 0 else 1.0
        whole, rest = divmod(horizon / quarter, 1)
        gains = [most * ratio**n for n in range(1, int(whole) + 2)]
        return sum(gains[:-1]) + rest * gains[-1]

    def _level(self, metric: MetricName, step: int) -> float:
        """Return the upper end of a metric's mean over the newest quarter of steps."""
        newest = self._window(metric, step * 0.75, step, trained=False)
        if not newest:
            return 1.0
        mean = sum(total / count for total, count in newest.values()) / len(newest)
        return mean + _ERRORS * math.sqrt(_variance(newest, newest) / 2)

    def _improvement(self, metric: MetricName, step: int) -> float:
        """Return the gain of the newest half of the steps on the start, in errors."""
        # The start: the measurement before training, or the first of the same tasks.
        newest = self._window(metric, step / 2, step, trained=False)
        gains = (_gain(s.shares[metric], newest) for s in self.samples if not s.trained)
        gain, variance = next((g for g in gains if g[1] < math.inf), (0.0, math.inf))
        return gain / math.sqrt(variance)

    def _rise(
        self, metric: MetricName, middle: float, length: float
    ) -> tuple[float, float]:
        """Return the gain from ``length`` steps before ``middle`` to those after it.

        The second value is the gain's variance; infinite if nothing can be compared.
        """
        gains = []
        for trained in (False, True):
            old = self._window(metric, middle - length, middle, trained=trained)
            new = self._window(metric, middle, middle + length, trained=trained)
            gains.append(_gain(old, new))
        weights = [1 / variance for _, variance in gains]
        if not (total := sum(weights)):
            return 0.0, math.inf
        mean = (
            sum(w * gain for w, (gain, _) in zip(weights, gains, strict=True)) / total
        )
        return mean, 1 / total

    def _window(
        self, metric: MetricName, after: float, until: float, *, trained: bool
    ) -> Shares:
        """Add up a metric over the samples of steps in (after, until], by family."""
        found: Shares = {}
        for sample in self.samples:
            if sample.trained is trained and after < sample.step <= until:
                for family, (total, count) in sample.shares[metric].items():
                    old = found.get(family, (0.0, 0))
                    found[family] = old[0] + total, old[1] + count
        return found

    def _was_solved(self, goal: Goal) -> bool:
        """Return whether all measured tasks were solved from the start, and many."""
        measured = [sample.shares for sample in self.samples if not sample.trained]
        found = [
            s for m in _metrics(goal) for each in measured for s in each[m].values()
        ]
        tasks = sum(count for _, count in found) / len(_metrics(goal))
        is_whole = all(total >= count - 1e-9 for total, count in found)
        return is_whole and len(measured) > 2 and tasks >= 1 / ENOUGH

    def _is_idle(self, step: int) -> bool:
        """Return whether the newest quarter of the steps had no training signal."""
        for least, counts_failed in ((_IDLE_STEPS, False), (_HOPELESS_STEPS, True)):
            newest = self.signals[-max(least, step // 4) :]
            if len(newest) < least:
                return False
            useful, solved, groups = map(sum, zip(*newest, strict=True))
            left = useful if counts_failed else groups - solved
            if left <= _IDLE_SHARE * groups:
                return True
        return False


def _metrics(goal: Goal) -> list[MetricName]:
    """Return the goal's metrics, and pass^1, which every run wants to raise."""
    return list(dict.fromkeys(["pass_1", *goal]))


def _shares(tasks: Iterable[TaskResult], metric: MetricName) -> list[float]:
    """Return a metric of each task in which it was measured, 0..1."""
    pairs = [task.pair(metric, 1) for task in tasks]
    return [min(1.0, value / out_of) for value, out_of in pairs if out_of]


def _gain(old: Shares, new: Shares) -> tuple[float, float]:
    """Return the mean gain over the families that both have, and its variance."""
    both = [family for family in old if family in new]
    if not both:
        return 0.0, math.inf
    gains = [new[f][0] / new[f][1] - old[f][0] / old[f][1] for f in both]
    first, second = ({f: shares[f] for f in both} for shares in (old, new))
    return sum(gains) / len(both), _variance(first, second)


def _variance(old: Shares, new: Shares) -> float:
    """Return the variance of the difference of two means over the same families.

    A share of 0..1 varies at most as a coin with its mean does. Half a failure among
    all tasks is added, so that tasks which were always solved vary a little.
    """
    tasks = sum(count for shares in (old, new) for _, count in shares.values())
    least = 0.5 / tasks * (1 - 0.5 / tasks)
    total = 0.0
    for family, (first, count) in old.items():
        second, more = new[family]
        both = count + more
        mean = (first + second) / both
        spread = mean * (1 - mean) * both / (both - 1)
        total += max(least, spread) * (1 / count + 1 / more)
    return total / len(old) ** 2
