"""Forecast how long a run has left from the time of its own phases."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.numbers import duration

_SLOWEST_UPDATE = 1.0
"""Seconds of an update per second of its rollouts, at most, where none was timed."""
_PLAN = 0.25, 1.0
"""Seconds to learn a known plan, least and most, per second of a measured rollout."""
_NEWEST = 10  # steps
_LONG_S = 600.0
_LEAST_ROLLOUTS, _LEAST_S = 4, 20.0
"""Rollouts and seconds of a baseline before its whole length is estimated."""


class Forecast:
    """Expects the remaining phases to take as long as those timed in this process.

    Args:
        config: Has the budget, and the sizes of measurements.
        held_out: Rollouts of the measurement at the end.
        at_once: Rollouts that run at once: fewer take about as long as so many, since
            the longest of them decides.
        clock: Returns seconds.
    """

    def __init__(
        self,
        config: TrainingConfig,
        held_out: int,
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._held_out = held_out
        self._at_once = at_once
        self._clock = clock
        self._began = 0.0
        self._ended = 0
        self._per_measured: float | None = None
        self._may_be_long = False
        self._steps: deque[tuple[int, float]] = deque(maxlen=_NEWEST)

    @contextmanager
    def measuring(self, *, is_baseline: bool = False) -> Iterator[None]:
        """Time a measurement, the newest of which counts."""
        self._ended = 0
        self._may_be_long = is_baseline and self._config.time is None
        yield
        if self._ended:
            rollouts = max(self._ended, self._at_once)
            self._per_measured = (self._clock() - self._began) / rollouts

    def rollout_done(self, seconds: float) -> None:
        """Note that a rollout has ended that took so long.

        A measurement began when its first rollout did: its workers start only once.
        """
        if not self._ended:
            self._began = self._clock() - seconds
        self._ended += 1

    def long_baseline(self) -> str:
        """Say, once, that the baseline takes more than ten minutes; else nothing."""
        taken = self._clock() - self._began
        if not self._may_be_long or self._ended < _LEAST_ROLLOUTS or taken < _LEAST_S:
            return ""
        total = taken / self._ended * self._held_out
        if total < _LONG_S:
            return ""
        self._may_be_long = False
        return (
            f"At this pace the {self._held_out:,} rollouts of the baseline take about "
            f"{duration(total)}, and as many come at the end. `--time 30m` sizes the "
            "whole run to 30 minutes; `--set test_tasks=24 --set eval_samples=1` "
            "measures less."
        )

    def step_done(self, episodes: int, seconds: float) -> None:
        """Note that a step of so many rollouts, with its update, has taken so long."""
        self._steps.append((episodes, seconds))

    @property
    def measured(self) -> float | None:
        """Seconds of a rollout of the newest measurement; None if there was none."""
        return self._per_measured

    @property
    def step(self) -> float | None:
        """Seconds of the longest of the newest steps; None if none was done."""
        return max((seconds for _, seconds in self._steps), default=None)

    def until_end(
        self, episodes: int, step: int, lesson: int, spent: float
    ) -> tuple[float, float, float | None] | None:
        """Return seconds until the end, at least, at most and with an early goal.

        None before anything was timed; see :meth:`left` and :meth:`soonest`. Where the
        run has a time, neither is longer than the rest of it.

        Args:
            episodes: Training rollouts done.
            step: Updates done.
            lesson: Rollouts that a warm start, still to come, learns from, or 0.
            spent: Wall seconds of the run so far.
        """
        left = self.left(episodes, step, lesson)
        if left is None:
            return None
        limit = self._config.time
        rest = math.inf if limit is None else max(0.0, limit - spent)
        soonest = self.soonest(episodes, step, lesson)
        is_early = soonest is not None and soonest < rest
        return min(left[0], rest), min(left[1], rest), soonest if is_early else None

    def soonest(self, episodes: int, step: int, lesson: int = 0) -> float | None:
        """Return seconds until the end if the goal holds at the first validation.

        None if reaching a goal does not end the run, or nothing was timed yet. Where a
        validation reaches the goal, as many other tasks confirm it.

        Args:
            episodes: Training rollouts done.
            step: Updates done.
            lesson: Rollouts that a warm start, still to come, learns from.
        """
        config = self._config
        if not config.early_stop:
            return None
        steps = 0 if lesson else config.eval_every - step % config.eval_every
        rollouts = steps * config.group_size * config.tasks_per_step
        if episodes + rollouts >= config.episodes:
            return None
        early = self._of_rollouts(rollouts, 2 * config.eval_tasks, lesson)
        return None if early is None else sum(early) / 2

    def left(
        self, episodes: int, step: int, lesson: int = 0
    ) -> tuple[float, float] | None:
        """Return seconds until the end if the budget is spent, at least and at most.

        They are the same once a step was timed, and unknown before anything was.

        Args:
            episodes: Training rollouts done.
            step: Updates done.
            lesson: Rollouts that a warm start, still to come, learns from; it is
                measured on held-out and on validation tasks.
        """
        config = self._config
        left = max(0, config.episodes - episodes)
        last = step + math.ceil(left / (config.group_size * config.tasks_per_step))
        validations = last // config.eval_every - step // config.eval_every
        return self._of_rollouts(left, validations * config.eval_tasks, lesson)

    def _of_rollouts(
        self, trained: int, validated: int, lesson: int
    ) -> tuple[float, float] | None:
        """Return seconds, at least and at most, of so many rollouts and the final test.

        None before anything was timed.
        """
        config, measured = self._config, self._per_measured
        if self._steps:
            total = sum(seconds for _, seconds in self._steps)
            least = most = total / sum(count for count, _ in self._steps)
            measured = least if measured is None else measured
        elif measured is not None:
            least, most = measured, measured * (1 + _SLOWEST_UPDATE)
        else:
            return None
        rest = (validated + self._held_out) * measured
        if lesson:
            rest += (config.eval_tasks + self._held_out) * measured
        low, high = (lesson * share * measured for share in _PLAN)
        return trained * least + rest + low, trained * most + rest + high
