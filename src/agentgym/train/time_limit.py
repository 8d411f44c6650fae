"""Keep a run within its time limit, and estimate the time that remains."""

import math
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import Trajectory
from agentgym.errors import TrainingFailedError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.numbers import duration, plural
from agentgym.scenarios.task_lists import held_out_count
from agentgym.train.run_context import RunContext
from agentgym.train.run_state import RunState
from agentgym.train.sampling import Sampling
from agentgym.train.warm_start.fine_tuning import most_tasks

TIMED_ROLLOUTS = 16
"""Upper limit on the rollouts that are timed at the start, to predict a run's time."""
_TIMING_SHARE = 0.05
"""Share of the time limit after which half of the timed rollouts are enough."""
_HELD_OUT_SHARE = 0.3
"""Share of the time limit for all measurements of held-out tasks together."""
_VALIDATION_SHARE = 0.15
_WARM_START_SHARE = 0.25
_WARM_START_OF_REST = 0.5
"""Upper limit on a warm start's share of the time that measurements leave; the rest is
for training."""
_IMITATION_PER_ROLLOUT = 3.0
"""Time of a warm start per task, relative to a rollout. A task's calls are run once and
imitated up to three times; all of this is assumed to take three rollouts' time."""
_STEP_PER_ROLLOUT = 2.0
"""Time of a step, relative to its rollouts, until a step was timed: the update is
assumed to take as long as the rollouts."""
_MARGIN = 1.2
"""The time that a message asks for, relative to the least that is accepted."""
_LEAST_TASKS = 6
"""Least number of held-out tasks. The paired significance test (before against after
training) finds no effect if fewer than six tasks change in one direction."""
_LEAST_VALIDATION = 8
_LEAST_IMITATED = 8
_LEAST_STEPS = 2
_LEAST_TASKS_PER_STEP = 4
_LEAST_S = 30.0
"""Shortest time limit: a run must start workers, load a model and time rollouts."""
_SLOWEST_UPDATE = 1.0
"""Longest assumed update, as a multiple of its rollouts' time, if none was timed."""
_NEWEST = 10  # number of newest steps that count
_LONG_S = 600.0
_LEAST_ROLLOUTS, _LEAST_WAIT_S = 4, 20.0
"""Number of rollouts and seconds after which a baseline's duration is estimated."""


def require_time(config: TrainingConfig) -> None:
    """Raise UsageError if a run's time limit is below 30 s, too short for any model."""
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
    """Chooses how many tasks and attempts of a run fit into its time limit.

    Arguments of its methods: ``measured`` and ``per_rollout`` are wall seconds per
    rollout, as timed in a measurement; ``left`` are the remaining seconds of the run.

    Attributes:
        config: The settings. Numbers such as ``test_tasks`` are upper limits.
        held_out: Returns the number of tasks in all held-out sets for a value of the
            setting ``test_tasks``. A larger value never gives fewer tasks.
        workers: Number of worker processes; each runs ``concurrency`` episodes at once.
        sampling: Returns the kind of training rollouts.
    """

    config: TrainingConfig
    held_out: Callable[[int], int]
    workers: int
    sampling: Callable[[], Sampling] = lambda: Sampling(None)

    @property
    def timed(self) -> int:
        """Number of rollouts to time: as many as run at once, but at most 16."""
        return min(TIMED_ROLLOUTS, self.workers * self.config.in_flight)

    @property
    def timing_s(self) -> float:
        """Seconds of timing after which fewer rollouts are enough."""
        return _TIMING_SHARE * (self.config.time or math.inf)

    def fit(self, left: float, per_rollout: float) -> dict[str, Any]:
        """Return settings that fill the remaining time.

        Time is used first for more held-out tasks, then for more attempts at each of
        them. Validations take a small share of the time. A warm start gets as many
        tasks as fit into a quarter of the time, even if the user has not accepted the
        warm start yet.
        """
        config = self.config
        batch = self._batch(left, per_rollout)
        step = self._step_s(batch, per_rollout)
        # A warm start alone is a result, so steps may be left out.
        steps = 0 if config.warm_start else _LEAST_STEPS
        times = 3 if config.warm_start else 2
        rollouts = _HELD_OUT_SHARE * left / (times * per_rollout)
        tasks = self._most_tasks(rollouts)
        fewest = min(_LEAST_TASKS, self._most_tasks(math.inf))
        if tasks < fewest or left < steps * step:
            least = times * self.held_out(fewest) * per_rollout / _HELD_OUT_SHARE
            spent = (config.time or 0) - left
            needed = spent + _MARGIN * max(least, steps * step)
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
        imitated = int(
            _WARM_START_SHARE * left / (_IMITATION_PER_ROLLOUT * per_rollout)
        )
        return self._sizes(left, per_rollout, batch) | {
            "warm_start_tasks": max(_LEAST_IMITATED, min(most_tasks(config), imitated)),
            "test_tasks": tasks,
            "eval_samples": self._attempts(rollouts, tasks),
        }

    def _attempts(self, rollouts: float, tasks: int) -> int:
        """Return the attempts at each held-out task for at most this many rollouts."""
        most = int(rollouts / self.held_out(tasks))
        return max(1, min(self.config.eval_samples, most))

    def fit_measurements(self, left: float, measured: float) -> dict[str, int]:
        """Return the sizes of the measurements after the baseline.

        The baseline's rollouts often take longer than those timed at the start, whose
        slowest were not waited for.
        """
        times = 1 + self.config.warm_start
        rollouts = _HELD_OUT_SHARE * left / (times * measured)
        return {
            "eval_samples": self._attempts(rollouts, self.config.test_tasks),
            "eval_tasks": self._validated_at_once(left, measured),
        }

    def _validated_at_once(self, left: float, per_rollout: float) -> int:
        """Return ``eval_tasks``, the tasks of a validation."""
        tasks = int(_VALIDATION_SHARE * left / per_rollout / 4)
        return min(self.config.eval_tasks, max(_LEAST_VALIDATION, tasks))

    def _most_tasks(self, rollouts: float) -> int:
        """Return the largest useful ``test_tasks`` for at most this many rollouts."""
        sizes = range(1, self.config.test_tasks + 1)
        most = bisect_right(sizes, rollouts, key=self.held_out)
        if not most:
            return 0
        # A scenario may have fewer tasks: larger values would not add any.
        return 1 + bisect_left(sizes, self.held_out(most), key=self.held_out)

    def fit_rest(self, left: float, measured: float) -> dict[str, int]:
        """Return sizes of steps and validations for the time after the baseline.

        The baseline is the measurement before training. Its rollouts often take longer
        than those timed at the start of the run; then steps and validations become
        smaller. They never become larger.
        """
        config = self.config.replaced(warm_start=False)  # any warm start is over
        rest = replace(self, config=config)
        return rest._sizes(left, measured, rest._batch(left, measured))

    def _sizes(
        self, left: float, per_rollout: float, batch: dict[str, int]
    ) -> dict[str, int]:
        """Return the settings ``batch``, plus ``eval_tasks`` and ``eval_every``."""
        config = self.config
        step = self._step_s(batch, per_rollout)
        tasks = self._validated_at_once(left, per_rollout)
        every = tasks * per_rollout / (_VALIDATION_SHARE * step)
        return batch | {
            "eval_tasks": tasks,
            "eval_every": max(config.eval_every, math.ceil(every)),
        }

    def _step_s(self, batch: dict[str, int], per_rollout: float) -> float:
        """Return the estimated seconds of a step of ``batch``, with its update."""
        each = self.sampling().share * per_rollout
        return math.prod(batch.values()) * each * _STEP_PER_ROLLOUT

    def _batch(self, left: float, per_rollout: float) -> dict[str, int]:
        """Return ``tasks_per_step`` and ``group_size``, with time for enough steps."""
        config = self.config
        share = 1 - _HELD_OUT_SHARE - _VALIDATION_SHARE
        share -= _WARM_START_SHARE * config.warm_start
        each = self._step_s({}, per_rollout)
        rollouts = share * left / (self.sampling().wished_steps * each)
        group = config.group_size
        few = min(_LEAST_TASKS_PER_STEP, config.tasks_per_step)
        while group // 2 >= self.sampling().least_group and rollouts < few * group:
            group //= 2
        tasks = max(few, min(config.tasks_per_step, int(rollouts / group)))
        return {"tasks_per_step": tasks, "group_size": group}

    def words(self, per_rollout: float, fitted: TrainingConfig) -> str:
        """Describe the use of the time, and the smallest gain that the run can show."""
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

    def warm_start_clock(self, state: RunState, measured: float) -> Callable[[], float]:
        """Return a function that gives the used share of a warm start's time.

        The warm start's time begins with this call. It leaves room for two measurements
        of held-out tasks and three of validation tasks (before training, and two to
        compare weights). Half of the rest is left for training. Without a time limit,
        the share is always 0.
        """
        if self.config.time is None:
            return lambda: 0.0
        later = (2 * self._held_out + 3 * self.config.eval_tasks) * measured
        rest = self.config.time - state.wall_seconds - later
        length = max(1.0, _WARM_START_OF_REST * rest)
        began = time.monotonic()
        return lambda: (time.monotonic() - began) / length

    def has_room(self, state: RunState, step: float | None, measured: float) -> bool:
        """Return whether another step, and later measurements, fit into the time limit.

        ``step`` is the duration of a step in seconds; None if no step was timed. The
        estimate for the first step leaves out its update, so this step may exceed the
        limit. A run that ended without any step would waste all of its time.
        """
        config = self.config
        if config.time is None:
            return True
        if step is None:
            step = self._step(measured) * (_STEP_PER_ROLLOUT if state.step else 1.0)
        after = (self._after(state) + self._validated(state)) * measured
        return state.wall_seconds + step + after <= config.time

    def check_trained(self, state: RunState, measured: float, run: Path) -> None:
        """Raise TrainingFailedError if the run has trained nothing so far."""
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
        """Return the estimated seconds of a step's rollouts, without the update."""
        size = self.config.group_size * self.config.tasks_per_step
        return size * self.sampling().share * measured

    def spent(self, state: RunState, measured: float) -> float:
        """Return the used share of the run's budget, 0..1.

        This is the share of training rollouts that are done. With a time limit, it is
        the used share of the training time if that is larger.
        """
        config = self.config
        share = state.episodes / max(1, config.episodes)
        if config.time is not None and state.training_began is not None:
            end = config.time - self._after(state) * measured
            length = max(1.0, end - state.training_began)
            share = max(share, (state.wall_seconds - state.training_began) / length)
        return min(1.0, share)

    def _after(self, state: RunState) -> int:
        """Return the number of rollouts in the measurements after the last step."""
        return self._held_out + 2 * self.config.eval_tasks * bool(state.warmed)

    def _validated(self, state: RunState) -> int:
        """Return the number of validation rollouts up to the end of the next step."""
        config = self.config
        first = bool(state.warmed) and not state.step and state.validation is None
        return config.eval_tasks * (first + ((state.step + 1) % config.eval_every == 0))

    @property
    def _held_out(self) -> int:
        """Number of rollouts in one measurement of held-out tasks."""
        return self.held_out(self.config.test_tasks) * self.config.eval_samples


@dataclass
class Forecast:
    """Estimates a run's remaining time from the durations of its phases so far.

    Arguments of its methods: ``episodes`` is the number of training rollouts done,
    ``step`` the number of updates, and ``imitated`` the number of rollouts that a later
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

        Only for the baseline can :meth:`long_baseline` return a warning.
        """
        self._ended = 0
        self._may_be_long = is_baseline and self.config.time is None
        yield
        if self._ended:
            self.measured = (self.clock() - self._began) / self._ended

    def rollout_done(self, seconds: float) -> None:
        """Count a rollout that has ended and took ``seconds``."""
        if not self._ended:
            # The start of the workers is not included.
            self._began = self.clock() - seconds
        self._ended += 1

    def long_baseline(self) -> str:
        """Return a warning, once, if the baseline takes over ten minutes; else ""."""
        taken = self.clock() - self._began
        if (
            not self._may_be_long
            or self._ended < _LEAST_ROLLOUTS
            or taken < _LEAST_WAIT_S
        ):
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

    def left(
        self, episodes: int, step: int, imitated: int, spent: float
    ) -> float | None:
        """Return the most seconds that the rest of the run takes, if all is used.

        ``spent`` are the run's seconds so far. Includes the measurement after a warm
        start. None before anything was timed.
        """
        config, measured = self.config, self.measured
        if self._steps:
            seconds = sum(seconds for _, seconds in self._steps)
            each = seconds / sum(count for count, _ in self._steps)
            measured = each if measured is None else measured
        elif measured is not None:
            each = measured * (1 + _SLOWEST_UPDATE)
        else:
            return None
        rollouts = max(0, config.episodes - episodes)
        last = step + math.ceil(rollouts / (config.group_size * config.tasks_per_step))
        validations = config.validations(last) - step // config.eval_every
        once, again = self.held_out, config.eval_tasks
        rest = once + again * validations + (once + again + imitated) * bool(imitated)
        limit = math.inf if config.time is None else max(0.0, config.time - spent)
        return min(rollouts * each + rest * measured, limit)


class RunClock:
    """Keeps a run within its time limit, and estimates the time that remains."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._size(run.config)

    def _size(self, config: TrainingConfig, each: float | None = None) -> None:
        """Plan the time for the settings ``config``."""
        run = self._run
        held_out = cache(partial(held_out_count, run.scenario, config.seed))
        rollouts = config.eval_samples * held_out(config.test_tasks)
        self._budget = TimeBudget(
            config, held_out, run.plan.workers, lambda: run.sampling
        )
        self._forecast = Forecast(config, rollouts, each)

    def fit(self, time_rollouts: Callable[[int, float], float]) -> None:
        """If the run has a time limit, time rollouts and choose numbers of tasks."""
        run, limit = self._run, self._run.config.time
        if limit is None or run.state.rollout_seconds is not None:
            return
        each = time_rollouts(self._budget.timed, self._budget.timing_s)
        run.sampling.time(each)
        run.use.update()
        self._fit(self._budget.fit(limit - run.state.wall_seconds, each), each)

    def fit_measurements(self) -> None:
        """After the baseline, fit later measurements to the remaining time."""
        self._fit_again(self._budget.fit_measurements, bool(self._run.state.warmed))

    def fit_rest(self) -> None:
        """Before the first step, fit steps and validations to the remaining time."""
        self._fit_again(self._budget.fit_rest, self._run.state.validation is not None)

    def _fit_again(
        self, fit: Callable[[float, float], dict[str, int]], is_late: bool
    ) -> None:
        run, limit, each = self._run, self._run.config.time, self._measured
        if not limit or not each or is_late or run.state.step:
            return
        run.use.update()
        run.state.rollout_seconds = each  # a resumed run has no other measurement
        sizes = fit(limit - run.state.wall_seconds, each)
        if run.config.replaced(**sizes) != run.config:
            self._fit(sizes, each)

    def _fit(self, sizes: dict[str, Any], each: float) -> None:
        """Use the settings ``sizes``, which were chosen for rollouts of ``each`` s."""
        run = self._run
        run.state.rollout_seconds = each
        config = run.config.replaced(**sizes)
        self._size(config, each)
        run.change_settings(config)
        run.progress(events.Message(self._budget.words(each, config)))

    @property
    def _measured(self) -> float:
        """Wall seconds per rollout in the newest measurement; 0 if not timed."""
        return self._forecast.measured or self._run.state.rollout_seconds or 0.0

    @property
    def has_room(self) -> bool:
        """Whether another step fits into the time limit; True without a limit."""
        return self._budget.has_room(
            self._run.state, self._forecast.step, self._measured
        )

    @property
    def spent(self) -> float:
        """The used share of the run's budget, 0..1."""
        return self._budget.spent(self._run.state, self._measured)

    def check_trained(self) -> None:
        """Raise TrainingFailedError if the time was too short to train anything."""
        self._budget.check_trained(
            self._run.state, self._measured, self._run.folder.path
        )

    def warm_start_spent(self) -> Callable[[], float]:
        """Begin a warm start; return a function for the used share of its time."""
        return self._budget.warm_start_clock(self._run.state, self._measured)

    def measuring(self, *, is_baseline: bool = False) -> AbstractContextManager[None]:
        """Record the duration of the measurement in a ``with`` block."""
        return self._forecast.measuring(is_baseline=is_baseline)

    def rollout_ended(self, trajectory: Trajectory) -> None:
        """Count a rollout; raise TrainingInterrupted after a Ctrl-C."""
        self._forecast.rollout_done(trajectory.duration_s)
        if text := self._forecast.long_baseline():
            self._run.progress(events.Warned(text))
        self._run.progress(events.RolloutDone())
        self._run.check_interrupt()

    def step_ended(self, rollouts: int, seconds: float) -> float:
        """Record a step's time; return the most seconds that the run still takes."""
        self._forecast.step_done(rollouts, seconds)
        return self._left() or 0.0

    def report_time_left(self, imitated: int = 0) -> None:
        """Report the time left; a warm start will yet imitate ``imitated`` rollouts."""
        if left := self._left(imitated):
            self._run.progress(events.TimeLeft(left))

    def _left(self, imitated: int = 0) -> float | None:
        state = self._run.state
        return self._forecast.left(
            state.episodes, state.step, imitated, state.wall_seconds
        )
