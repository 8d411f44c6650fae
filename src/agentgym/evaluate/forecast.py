"""Forecast: estimate a run's remaining time from its phases so far."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.numbers import duration

_SLOWEST_UPDATE = 1.0
"""Longest assumed update, as a multiple of its rollouts' time, if none was timed."""
_PLAN = 0.25, 1.0
"""Least and most assumed time to learn from a rollout in a warm start.

Both are relative to the time that it takes to run the rollout.
"""
_NEWEST = 10  # number of newest steps that count
_LONG_S = 600.0
_LEAST_ROLLOUTS, _LEAST_S = 4, 20.0
"""Number of rollouts and seconds after which a baseline's duration is estimated."""


@dataclass
class Forecast:
    """Estimates a run's remaining time from the durations of its phases so far.

    Arguments of its methods: ``episodes`` is the number of training rollouts done,
    ``step`` the number of updates, and ``lesson`` the number of rollouts that a later
    warm start will imitate (0 without one).

    Attributes:
        held_out: Number of rollouts of the final measurement.
        measured: Seconds per rollout in the newest measurement; None before the first.
        clock: Returns the time in seconds.
    """

    config: TrainingConfig
    held_out: int
    measured: float | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = 0.0
        self._ended = 0
        self._may_be_long = False
        self._steps: deque[tuple[int, float]] = deque(maxlen=_NEWEST)

    @contextmanager
    def measuring(self, *, is_baseline: bool = False) -> Iterator[None]:
        """Record the duration of the measurement that runs in a ``with`` block.

        The duration replaces that of an earlier measurement. Call :meth:`rollout_done`
        for each rollout. ``is_baseline`` is true for the measurement before training;
        only in this one can :meth:`long_baseline` return a warning.
        """
        self._ended = 0
        self._may_be_long = is_baseline and self.config.time is None
        yield
        if self._ended:
            self.measured = (self.clock() - self._began) / self._ended

    def rollout_done(self, seconds: float) -> None:
        """Count a rollout that has ended and took ``seconds``.

        The time of a measurement begins with its first rollout, so that the start of
        the workers is not included.
        """
        if not self._ended:
            self._began = self.clock() - seconds
        self._ended += 1

    def long_baseline(self) -> str:
        """Return a warning if the baseline will take over ten minutes; else "".

        The warning is returned only once, and never in a run with a time limit.
        """
        taken = self.clock() - self._began
        if not self._may_be_long or self._ended < _LEAST_ROLLOUTS or taken < _LEAST_S:
            return ""
        total = taken / self._ended * self.held_out
        if total < _LONG_S:
            return ""
        self._may_be_long = False
        return (
            f"At this pace the {self.held_out:,} rollouts of the baseline take about "
            f"{duration(total)}, and as many come at the end. `--time 30m` sizes the "
            "whole run to 30 minutes; `--set test_tasks=24 --set eval_samples=1` "
            "measures less."
        )

    def step_done(self, episodes: int, seconds: float) -> None:
        """Record a step's number of rollouts and its seconds, update included."""
        self._steps.append((episodes, seconds))

    @property
    def step(self) -> float | None:
        """Seconds of the longest of the last ten steps; None before the first step."""
        return max((seconds for _, seconds in self._steps), default=None)

    def until_end(
        self, episodes: int, step: int, lesson: int, spent: float
    ) -> tuple[float, float] | None:
        """Return the least and the most remaining seconds for the whole budget.

        Neither is longer than the rest of the run's time limit, of which ``spent`` wall
        seconds are used. Without any timed rollouts, the result is None.
        """
        left = self.left(episodes, step, lesson)
        if left is None:
            return None
        limit = self.config.time
        rest = math.inf if limit is None else max(0.0, limit - spent)
        return min(left[0], rest), min(left[1], rest)

    def left(
        self, episodes: int, step: int, lesson: int = 0
    ) -> tuple[float, float] | None:
        """Return the least and the most remaining seconds for the whole budget.

        After the first step, both are equal if no warm start is to come. The time of a
        warm start includes measuring the policy after it. None before anything was
        timed.
        """
        config = self.config
        left = max(0, config.episodes - episodes)
        last = step + math.ceil(left / (config.group_size * config.tasks_per_step))
        validations = last // config.eval_every - step // config.eval_every
        return self._of_rollouts(left, validations * config.eval_tasks, lesson)

    def _of_rollouts(
        self, trained: int, validated: int, lesson: int
    ) -> tuple[float, float] | None:
        """Return the least and the most seconds for the work that remains.

        The work is ``trained`` and ``validated`` rollouts, a warm start and the final
        measurement. None before anything was timed.
        """
        config, measured = self.config, self.measured
        if self._steps:
            total = sum(seconds for _, seconds in self._steps)
            least = most = total / sum(count for count, _ in self._steps)
            measured = least if measured is None else measured
        elif measured is not None:
            least, most = measured, measured * (1 + _SLOWEST_UPDATE)
        else:
            return None
        rest = (validated + self.held_out) * measured
        if lesson:
            rest += (config.eval_tasks + self.held_out) * measured
        low, high = (lesson * share * measured for share in _PLAN)
        return trained * least + rest + low, trained * most + rest + high
