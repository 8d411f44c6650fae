"""Forecast a run's remaining time from the time of its own phases."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.numbers import duration

_SLOWEST_UPDATE = 1.0
"""Longest assumed time of an update per second of its rollouts, until one was timed."""
_PLAN = 0.25, 1.0
"""Least and most seconds to learn a plan, per second of a measured rollout."""
_NEWEST = 10  # number of steps
_LONG_S = 600.0
_LEAST_ROLLOUTS, _LEAST_S = 4, 20.0
"""Rollouts and seconds of a baseline before its whole duration is estimated."""


class Forecast:
    """Estimates the remaining time from the phases that this process has timed.

    Args:
        config: The settings, with the budget and the sizes of measurements.
        held_out: Number of rollouts of the final measurement.
        at_once: Number of rollouts that run at once. Fewer take about as long, since
            the longest of them decides.
        measured: Seconds per measured rollout, if already timed.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        config: TrainingConfig,
        held_out: int,
        at_once: int = 1,
        measured: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._held_out = held_out
        self._at_once = at_once
        self._clock = clock
        self._began = 0.0
        self._ended = 0
        self._per_measured = measured
        self._may_be_long = False
        self._steps: deque[tuple[int, float]] = deque(maxlen=_NEWEST)

    @contextmanager
    def measuring(self, *, is_baseline: bool = False) -> Iterator[None]:
        """Time a measurement; the newest one counts."""
        self._ended = 0
        self._may_be_long = is_baseline and self._config.time is None
        yield
        if self._ended:
            rollouts = max(self._ended, self._at_once)
            self._per_measured = (self._clock() - self._began) / rollouts

    def rollout_done(self, seconds: float) -> None:
        """Record the time of a rollout that has ended.

        A measurement starts with its first rollout: workers start only once.
        """
        if not self._ended:
            self._began = self._clock() - seconds
        self._ended += 1

    def long_baseline(self) -> str:
        """Return a message, once, if the baseline takes over ten minutes; else ""."""
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
        """Record a step's number of rollouts and its time, update included."""
        self._steps.append((episodes, seconds))

    @property
    def measured(self) -> float | None:
        """Seconds per rollout of the newest measurement; None if there was none."""
        return self._per_measured

    @property
    def step(self) -> float | None:
        """Seconds of the longest of the newest steps; None if there was none."""
        return max((seconds for _, seconds in self._steps), default=None)

    def until_end(
        self, episodes: int, step: int, lesson: int, spent: float
    ) -> tuple[float, float, float | None] | None:
        """Return the remaining seconds: least, most, and with an early goal.

        None until something was timed; see :meth:`left` and :meth:`soonest`. In a run
        with a time limit, none exceeds the remaining time.

        Args:
            episodes: Number of training rollouts done.
            step: Number of updates done.
            lesson: Rollouts that a future warm start learns from, or 0.
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
        """Return the remaining seconds if the first validation reaches the goal.

        None if reaching the goal does not end the run, or nothing was timed yet. When a
        validation reaches the goal, as many other tasks confirm it.

        Args:
            episodes: Number of training rollouts done.
            step: Number of updates done.
            lesson: Rollouts that a future warm start learns from.
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
        """Return the remaining seconds for the whole budget, at least and at most.

        They are equal once a step was timed, and None until something was timed.

        Args:
            episodes: Number of training rollouts done.
            step: Number of updates done.
            lesson: Rollouts that a future warm start learns from; it is measured on
                held-out and validation tasks.
        """
        config = self._config
        left = max(0, config.episodes - episodes)
        last = step + math.ceil(left / (config.group_size * config.tasks_per_step))
        validations = last // config.eval_every - step // config.eval_every
        return self._of_rollouts(left, validations * config.eval_tasks, lesson)

    def _of_rollouts(
        self, trained: int, validated: int, lesson: int
    ) -> tuple[float, float] | None:
        """Return the least and most seconds for some rollouts and the final test.

        None until something was timed.
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
