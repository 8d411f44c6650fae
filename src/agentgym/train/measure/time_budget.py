"""TimeBudget: choose measurements and steps that fit into a time limit."""

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.errors import TrainingFailedError, UsageError
from agentgym.evaluate.numbers import duration, plural
from agentgym.train.run_folder import RunState
from agentgym.train.warm_start.lesson import most_tasks

TIMED_ROLLOUTS = 16
"""Most rollouts that are timed first."""
_TIMING_SHARE = 0.05
"""Share of the time limit after which half of the timed rollouts suffice."""
_HELD_OUT_SHARE = 0.3
"""Share of the time limit for held-out tasks: before, after, and after a warm start.
"""
_VALIDATION_SHARE = 0.15
_WARM_START_SHARE = 0.25
_LESSON_PER_ROLLOUT = 3.0
"""Seconds of a warm start per task and second of a rollout: a task's calls are played
once and learned up to three times; each of these is assumed to take that long."""
_STEP_PER_ROLLOUT = 2.0
"""Seconds of a step per second of its rollouts, until a step was timed: the update is
assumed to take as long as they do."""
_LEAST_TASKS = 6
"""Least held-out tasks: the paired test needs six that change in one direction."""
_LEAST_VALIDATION = 8
_LEAST_LESSON = 8
_LEAST_STEPS = 2
_WISHED_STEPS = 8
"""Least steps that a run should have room for, if smaller steps allow it: an app with
three tools reached its goal in five of 32 rollouts (docs/models.md)."""
_LEAST_TASKS_PER_STEP = 4
_LEAST_GROUP = 4
"""Least attempts at a task, and least tasks per step: with fewer, hardly any group has
attempts that differ."""
_LEAST_S = 30.0
"""Shortest run: it starts workers, loads a model, and times rollouts first."""


def require_time(config: TrainingConfig) -> None:
    """Raise if a run's time limit is too short for any model.

    Raises:
        UsageError: It is too short. (Rollout times are checked later.)
    """
    if config.time is not None and config.time < _LEAST_S:
        step = config.group_size * config.tasks_per_step
        raise UsageError(
            f"time = {duration(config.time)} is too short for any run: a model is "
            f"loaded, workers start, and {_LEAST_STEPS} steps of "
            f"{plural(step, 'rollout')} and {_LEAST_TASKS} held-out tasks are the "
            "least that shows anything. Give --time 5m or more."
        )


@dataclass(frozen=True)
class TimeBudget:
    """Fits a run's sizes to its time limit, from how long rollouts take.

    Attributes:
        config: The settings: ``time``, and upper limits of the sizes.
        held_out: Returns the number of tasks in all held-out sets for a value of
            ``test_tasks``; it does not fall as that rises.
        workers: Number of processes with ``concurrency`` episodes in flight each.
    """

    config: TrainingConfig
    held_out: Callable[[int], int]
    workers: int

    @property
    def timed(self) -> int:
        """Number of rollouts to time: as many as run at once, up to a limit."""
        return min(TIMED_ROLLOUTS, self.workers * self.config.in_flight)

    @property
    def timing_s(self) -> float:
        """Seconds of timing after which fewer rollouts are enough."""
        return _TIMING_SHARE * (self.config.time or math.inf)

    def fit(self, left: float, per_rollout: float) -> dict[str, Any]:
        """Return settings that fill the remaining time.

        Held-out tasks come first, then attempts at each. Validations are few enough to
        take a small share. A warm start, also one accepted later, gets as many tasks as
        fit into a quarter of the time.

        Args:
            left: Remaining seconds.
            per_rollout: Wall seconds per rollout, with the run's number in flight.

        Raises:
            UsageError: The time is too short to show anything; the message has the time
                needed.
        """
        config = self.config
        batch = self._batch(left, per_rollout)
        step = math.prod(batch.values()) * per_rollout * _STEP_PER_ROLLOUT
        # A warm start is a result without a step, and makes rollouts shorter.
        steps = 0 if config.warm_start else _LEAST_STEPS
        times = 3 if config.warm_start else 2
        rollouts = _HELD_OUT_SHARE * left / (times * per_rollout)
        tasks = self._most_tasks(rollouts)
        fewest = min(_LEAST_TASKS, self._most_tasks(math.inf))
        if tasks < fewest or left < steps * step:
            least = times * self.held_out(fewest) * per_rollout / _HELD_OUT_SHARE
            needed = 1.5 * max(least, 2 * steps * step)
            wish, less = "a warm start", "shorter answers (--set max_tokens=256)"
            if steps:
                size = math.prod(batch.values())
                wish = f"{steps} steps of {plural(size, 'rollout')}"
                less = "smaller steps (--set tasks_per_step=2)"
            raise UsageError(
                f"time = {duration(config.time or 0)} is too short: a rollout takes "
                f"{per_rollout:.1f} s here, {plural(self.timed, 'rollout')} at once, "
                f"so that {wish} and {fewest} held-out tasks, measured {times} "
                f"times, need about {duration(needed)}. Give --time "
                f"{math.ceil(needed / 60)}m, a smaller model, or {less}."
            )
        samples = max(1, min(config.eval_samples, int(rollouts / self.held_out(tasks))))
        lesson = int(_WARM_START_SHARE * left / (_LESSON_PER_ROLLOUT * per_rollout))
        return self._sizes(left, per_rollout, batch) | {
            "warm_start_tasks": max(_LEAST_LESSON, min(most_tasks(config), lesson)),
            "test_tasks": tasks,
            "eval_samples": samples,
        }

    def _most_tasks(self, rollouts: float) -> int:
        """Return the value of ``test_tasks`` that fills so many rollouts.

        If the scenario has fewer tasks, it is their number; 0 if not one task fits.
        """
        sizes = range(1, self.config.test_tasks + 1)
        most = bisect_right(sizes, rollouts, key=self.held_out)
        if not most:
            return 0
        return 1 + bisect_left(sizes, self.held_out(most), key=self.held_out)

    def fit_rest(self, left: float, measured: float) -> dict[str, int]:
        """Return sizes of steps and validations that fill the time after a baseline.

        The rollouts of a baseline often take longer than the few that are timed first.
        Without smaller sizes, the measurements would leave no time for a step. No size
        grows.

        Args:
            left: Remaining seconds.
            measured: Wall seconds per measured rollout.
        """
        config = self.config.replaced(warm_start=False)  # it is done, if there was one
        rest = replace(self, config=config)
        return rest._sizes(left, measured, rest._batch(left, measured))

    def _sizes(
        self, left: float, per_rollout: float, batch: dict[str, int]
    ) -> dict[str, int]:
        """Return a batch's sizes, and validations that take a small share of the time.

        Args:
            left: Remaining seconds.
            per_rollout: Wall seconds per rollout.
            batch: See :meth:`_batch`.
        """
        config = self.config
        step = math.prod(batch.values()) * per_rollout * _STEP_PER_ROLLOUT
        tasks = max(_LEAST_VALIDATION, int(_VALIDATION_SHARE * left / per_rollout / 4))
        tasks = min(config.eval_tasks, tasks)
        every = tasks * per_rollout / (_VALIDATION_SHARE * step)
        return batch | {
            "eval_tasks": tasks,
            "eval_every": max(config.eval_every, math.ceil(every)),
        }

    def _batch(self, left: float, per_rollout: float) -> dict[str, int]:
        """Return tasks per step, and attempts at each, that leave time for some steps.

        Attempts are halved before the tasks per step become few.
        """
        config = self.config
        share = 1 - _HELD_OUT_SHARE - _VALIDATION_SHARE
        share -= _WARM_START_SHARE * config.warm_start
        rollouts = share * left / (_WISHED_STEPS * _STEP_PER_ROLLOUT * per_rollout)
        group, few = (
            config.group_size,
            min(_LEAST_TASKS_PER_STEP, config.tasks_per_step),
        )
        while group // 2 >= _LEAST_GROUP and rollouts < few * group:
            group //= 2
        tasks = max(few, min(config.tasks_per_step, int(rollouts / group)))
        return {"tasks_per_step": tasks, "group_size": group}

    def words(self, per_rollout: float, fitted: TrainingConfig) -> str:
        """Describe the use of the time, and the smallest effect that it can show."""
        tasks = fitted.test_tasks
        change = min(1.0, _LEAST_TASKS / tasks)
        attempts = plural(fitted.eval_samples, "attempt")
        return (
            f"A rollout takes {per_rollout:.1f} s here, {plural(self.timed, 'rollout')}"
            f" at once. In {duration(fitted.time or 0)}: "
            f"{plural(tasks, 'held-out task')}, {attempts} at each, which can show a "
            f"gain of about {100 * change:.0f} points or more; "
            f"at most {plural(fitted.eval_tasks, 'validation task')} every "
            f"{plural(fitted.eval_every, 'step')}; and as many steps as fit, of "
            f"{plural(fitted.tasks_per_step, 'task')} with "
            f"{plural(fitted.group_size, 'attempt')} each."
        )

    def lesson_clock(self, state: RunState, measured: float) -> Callable[[], float]:
        """Return a clock for a warm start from now on: the used share of its time.

        It leaves time for held-out tasks after it and at the end, but none for steps.
        Always 0 without a limit.

        Args:
            state: The run's state.
            measured: Seconds per measured rollout.
        """
        if self.config.time is None:
            return lambda: 0.0
        later = 2 * self._held_out * measured
        length = max(1.0, self.config.time - state.wall_seconds - later)
        began = time.monotonic()
        return lambda: (time.monotonic() - began) / length

    def has_room(self, state: RunState, step: float | None, measured: float) -> bool:
        """Return whether another step, and the work after it, fit into the time limit.

        The first step may overrun: without any step, all earlier time would be wasted.

        Args:
            state: The run's state.
            step: Seconds per step; None if none was timed.
            measured: Seconds per measured rollout.
        """
        config = self.config
        if config.time is None:
            return True
        if step is None:
            step = self._step(measured) * (_STEP_PER_ROLLOUT if state.step else 1.0)
        after = (self._after(state) + self._validated(state)) * measured
        return state.wall_seconds + step + after <= config.time

    def check_trained(self, state: RunState, measured: float, run: Path) -> None:
        """Raise if a run's time ended before it trained.

        Args:
            state: The run's state.
            measured: Seconds per measured rollout.
            run: The run's folder.

        Raises:
            TrainingFailedError: It did not train; the message has a sufficient time.
        """
        if state.step or state.warmed:
            return
        config = self.config
        size = config.group_size * config.tasks_per_step
        steps = _LEAST_STEPS * _STEP_PER_ROLLOUT * self._step(measured)
        needed = state.wall_seconds + steps + self._after(state) * measured
        raise TrainingFailedError(
            f"The time of {duration(config.time or 0)} is too short for the first "
            f"step: measuring has taken {duration(state.wall_seconds)}, and the step's "
            f"{plural(size, 'rollout')} and the last measurement do not fit into the "
            "rest. The policy is as it was before. Go on with `agentgym train --resume "
            f"{run} --time {math.ceil(needed / 60)}m`, or start again with a smaller "
            "model, or with shorter answers (--set max_tokens=256).",
            resumable=False,
        )

    def _step(self, measured: float) -> float:
        """Return the seconds of a step's rollouts."""
        return self.config.group_size * self.config.tasks_per_step * measured

    def spent(self, state: RunState, measured: float) -> float:
        """Return the used share of a run's budget, of episodes or of time."""
        config = self.config
        share = state.episodes / max(1, config.episodes)
        if config.time is not None and state.training_began is not None:
            end = config.time - self._after(state) * measured
            length = max(1.0, end - state.training_began)
            share = max(share, (state.wall_seconds - state.training_began) / length)
        return min(1.0, share)

    def _after(self, state: RunState) -> int:
        """Return the number of rollouts that come after the last step."""
        return self._held_out + 2 * self.config.eval_tasks * bool(state.warmed)

    def _validated(self, state: RunState) -> int:
        """Return the number of validation rollouts that the coming step brings.

        A warm start is validated before the first step.
        """
        config = self.config
        first = bool(state.warmed) and not state.step and state.validation is None
        return config.eval_tasks * (first + ((state.step + 1) % config.eval_every == 0))

    @property
    def _held_out(self) -> int:
        """Number of rollouts in one measurement of held-out tasks."""
        return self.held_out(self.config.test_tasks) * self.config.eval_samples
