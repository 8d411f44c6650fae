"""Keep a run within its time limit, and estimate the time that remains.

The limit sizes a run by one rule (:meth:`RunClock.sizes`), from rollouts that are timed
at its start and again from its baseline. Then no step begins that would not end in time
together with the measurements after it.
"""

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import Trajectory
from agentgym.errors import TrainingFailedError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.numbers import duration, plural
from agentgym.scenarios.task_lists import held_out_count
from agentgym.train.run_context import RunContext

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
_NEWEST = 10  # number of newest steps that count
_LONG_S, _LEAST_ROLLOUTS, _LEAST_WAIT_S = 600.0, 4, 20.0
"""A warning says that a baseline takes longer than this, after so many rollouts and
seconds."""


def require_time(config: TrainingConfig) -> None:
    """Raise UsageError if a run's time limit is below 30 s, too short for any model."""
    if config.time is not None and config.time < _LEAST_S:
        raise UsageError(
            f"time = {duration(config.time)} is too short for any run, which loads a "
            f"model, starts workers and does {_LEAST_STEPS} steps. Give --time 5m or "
            "more."
        )


class RunClock:
    """Sizes a run for its time limit, and says whether another step fits into it."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        # The number of tasks in all held-out sets, for a value of `test_tasks`.
        self._tasks = cache(partial(held_out_count, run.scenario, run.config.seed))
        self._measured: float | None = None  # seconds a rollout
        self._steps: list[tuple[int, float]] = []  # rollouts and seconds of each
        self._began = 0.0  # of the newest measurement
        self._ended = 0  # rollouts of it
        self._may_warn = False

    def fit(self, time_rollouts: Callable[[int, float], float]) -> None:
        """If the run has a time limit, time rollouts and choose numbers of tasks."""
        run, limit = self._run, self._run.config.time
        if limit is None or run.state.rollout_seconds is not None:
            return
        each = time_rollouts(self._timed, _TIMING_SHARE * limit)
        run.sampling.time(each)
        run.use.update()
        self._use(self.sizes(limit - run.state.wall_seconds, each), each)

    def fit_rest(self) -> None:
        """After a measurement, fit steps and later measurements to the remaining time.

        Its rollouts often take longer than those timed at the start, whose slowest were
        not waited for. Sizes then become smaller, never larger.
        """
        run, limit, each = self._run, self._run.config.time, self._each
        if not limit or not each or run.state.validation is not None or run.state.step:
            return
        run.use.update()
        run.state.rollout_seconds = each  # a resumed run has no other measurement
        sizes = self.sizes_of_rest(limit - run.state.wall_seconds, each)
        if run.config.replaced(**sizes) != run.config:
            self._use(sizes, each)

    def _use(self, sizes: dict[str, Any], each: float) -> None:
        """Use the settings ``sizes``, which were chosen for rollouts of ``each`` s."""
        run = self._run
        run.state.rollout_seconds = self._measured = each
        run.change_settings(run.config.replaced(**sizes))
        run.progress(events.Message(self._words(each)))

    def sizes(self, left: float, each: float) -> dict[str, Any]:
        """Return settings that fill ``left`` seconds, at ``each`` seconds a rollout.

        Time is used first for more held-out tasks, then for more attempts at each of
        them. A warm start gets as many tasks as fit into a quarter of the time, even if
        the user has not accepted it yet.

        Raises:
            UsageError: Not even the smallest sizes fit.
        """
        from agentgym.train.warm_start import most_tasks

        config, rest = self._run.config, self.sizes_of_rest(left, each)
        rollouts = _HELD_OUT_SHARE * left / ((2 + config.warm_start) * each)
        tasks = self._most_tasks(rollouts)
        size = rest["tasks_per_step"] * rest["group_size"]
        # A warm start alone is a result, so steps may be left out.
        training = 0 if config.warm_start else _LEAST_STEPS * self._step_s(size, each)
        if tasks < min(_LEAST_TASKS, self._most_tasks(math.inf)) or left < training:
            raise self._too_short(left, each, size, training)
        imitated = int(_WARM_START_SHARE * left / (_IMITATION_PER_ROLLOUT * each))
        return rest | {
            "warm_start_tasks": max(_LEAST_IMITATED, min(most_tasks(config), imitated)),
            "test_tasks": tasks,
            "eval_samples": self._attempts(rollouts, tasks),
        }

    def sizes_of_rest(self, left: float, each: float) -> dict[str, Any]:
        """Return the sizes of steps, validations and later measurements."""
        config, is_warmed = self._run.config, bool(self._run.state.warmed)
        warms = config.warm_start and not is_warmed
        share = 1 - _HELD_OUT_SHARE - _VALIDATION_SHARE - _WARM_START_SHARE * warms
        sampling = self._run.sampling
        rollouts = share * left / (sampling.wished_steps * self._step_s(1, each))
        group = config.group_size
        few = min(_LEAST_TASKS_PER_STEP, config.tasks_per_step)
        while group // 2 >= sampling.least_group and rollouts < few * group:
            group //= 2
        tasks = max(few, min(config.tasks_per_step, int(rollouts / group)))
        validated = int(_VALIDATION_SHARE * left / each / 4)
        validated = min(config.eval_tasks, max(_LEAST_VALIDATION, validated))
        step = self._step_s(tasks * group, each)
        every = math.ceil(validated * each / (_VALIDATION_SHARE * step))
        measured = _HELD_OUT_SHARE * left / ((1 + warms) * each)
        return {
            "tasks_per_step": tasks,
            "group_size": group,
            "eval_tasks": validated,
            "eval_every": max(config.eval_every, every),
            "eval_samples": self._attempts(measured, config.test_tasks),
        }

    def _too_short(
        self, left: float, each: float, size: int, training: float
    ) -> UsageError:
        config = self._run.config
        times = 2 + config.warm_start
        fewest = min(_LEAST_TASKS, self._most_tasks(math.inf))
        measuring = times * self._tasks(fewest) * each / _HELD_OUT_SHARE
        needed = (config.time or 0) - left + _MARGIN * max(measuring, training)
        wish = f"{_LEAST_STEPS} steps of {plural(size, 'rollout')}"
        return UsageError(
            f"time = {duration(config.time or 0)} is too short: a rollout takes "
            f"{each:.1f} s here, {plural(self._timed, 'rollout')} at once, so that "
            f"{wish if training else 'a warm start'} and {fewest} held-out tasks, "
            f"measured {times} times, need about {duration(needed)}. Give --time "
            f"{math.ceil(needed / 60)}m, a smaller model, shorter answers (--set "
            "max_tokens=256), or smaller steps (--set tasks_per_step=2)."
        )

    @property
    def _timed(self) -> int:
        """Number of rollouts to time: as many as run at once, but at most 16."""
        at_once = self._run.plan.workers * self._run.config.in_flight
        return min(TIMED_ROLLOUTS, at_once)

    def _attempts(self, rollouts: float, tasks: int) -> int:
        """Return the attempts at each held-out task for at most this many rollouts."""
        most = int(rollouts / self._tasks(tasks))
        return max(1, min(self._run.config.eval_samples, most))

    def _most_tasks(self, rollouts: float) -> int:
        """Return the largest useful ``test_tasks`` for at most this many rollouts."""
        sizes = range(1, self._run.config.test_tasks + 1)
        most = bisect_right(sizes, rollouts, key=self._tasks)
        if not most:
            return 0
        # A scenario may have fewer tasks: larger values would not add any.
        return 1 + bisect_left(sizes, self._tasks(most), key=self._tasks)

    def _step_s(self, rollouts: int, each: float) -> float:
        """Return the estimated seconds of a step with its update."""
        return rollouts * self._run.sampling.share * each * _STEP_PER_ROLLOUT

    def _words(self, each: float) -> str:
        """Describe the use of the time, and the smallest gain that the run can show."""
        fitted = self._run.config
        change = min(1.0, _LEAST_TASKS / fitted.test_tasks)
        return (
            f"A rollout takes {each:.1f} s here, {plural(self._timed, 'rollout')}"
            f" at once. In {duration(fitted.time or 0)}: "
            f"{plural(fitted.test_tasks, 'held-out task')}, "
            f"{plural(fitted.eval_samples, 'attempt')} at each, which can show a "
            f"gain of about {100 * change:.0f} points or more; "
            f"at most {plural(fitted.eval_tasks, 'validation task')} every "
            f"{plural(fitted.eval_every, 'step')}; and as many steps as fit, of "
            f"{plural(fitted.tasks_per_step, 'task')} with "
            f"{plural(fitted.group_size, 'attempt')} each."
        )

    @property
    def _each(self) -> float:
        """Wall seconds per rollout in the newest measurement; 0 if not timed."""
        return self._measured or self._run.state.rollout_seconds or 0.0

    @property
    def _held_out(self) -> int:
        """Number of rollouts in one measurement of held-out tasks."""
        config = self._run.config
        return self._tasks(config.test_tasks) * config.eval_samples

    @property
    def _after(self) -> float:
        """Seconds of the measurements after the last step."""
        config, state = self._run.config, self._run.state
        return (
            self._held_out + 2 * config.eval_tasks * bool(state.warmed)
        ) * self._each

    @property
    def _rollouts_s(self) -> float:
        """The estimated seconds of a step's rollouts, without the update."""
        config = self._run.config
        size = config.group_size * config.tasks_per_step
        return size * self._run.sampling.share * self._each

    @property
    def has_room(self) -> bool:
        """Whether another step, and the measurements after it, end in time.

        The estimate for the first step leaves out its update, so this step may exceed
        the limit. A run that ended without any step would waste all of its time.
        """
        config, state = self._run.config, self._run.state
        if config.time is None:
            return True
        if self._steps:
            step = max(seconds for _, seconds in self._steps[-_NEWEST:])
        else:
            step = self._rollouts_s * (_STEP_PER_ROLLOUT if state.step else 1.0)
        is_first = bool(state.warmed) and not state.step and state.validation is None
        validations = is_first + ((state.step + 1) % config.eval_every == 0)
        step += validations * config.eval_tasks * self._each
        return state.wall_seconds + step + self._after <= config.time

    def check_trained(self) -> None:
        """Raise TrainingFailedError if the time was too short to train anything."""
        config, state = self._run.config, self._run.state
        if state.step or state.warmed:
            return
        steps = _LEAST_STEPS * _STEP_PER_ROLLOUT * self._rollouts_s
        needed = state.wall_seconds + steps + self._after
        raise TrainingFailedError(
            f"The time of {duration(config.time or 0)} is too short for the first "
            f"step: measuring has taken {duration(state.wall_seconds)}, and a step and "
            "the last measurement do not fit into the rest. The policy is as it was "
            f"before. Go on with `agentgym train --resume {self._run.folder.path} "
            f"--time {math.ceil(needed / 60)}m`, or start again with a smaller model, "
            "or with shorter answers (--set max_tokens=256).",
            resumable=False,
        )

    @property
    def spent(self) -> float:
        """The used share of the run's budget, 0..1.

        This is the share of training rollouts that are done. With a time limit, it is
        the used share of the training time if that is larger.
        """
        config, state = self._run.config, self._run.state
        share = state.episodes / max(1, config.episodes)
        if config.time is not None and state.training_began is not None:
            length = max(1.0, config.time - self._after - state.training_began)
            share = max(share, (state.wall_seconds - state.training_began) / length)
        return min(1.0, share)

    def warm_start_spent(self) -> Callable[[], float]:
        """Begin a warm start; return a function for the used share of its time.

        It leaves room for two measurements of held-out tasks and three of validation
        tasks (before training, and two to compare weights). Half of the rest is left
        for training. Without a time limit, the share is always 0.
        """
        config, state = self._run.config, self._run.state
        if config.time is None:
            return lambda: 0.0
        later = (2 * self._held_out + 3 * config.eval_tasks) * self._each
        rest = config.time - state.wall_seconds - later
        length = max(1.0, _WARM_START_OF_REST * rest)
        began = time.monotonic()
        return lambda: (time.monotonic() - began) / length

    @contextmanager
    def measuring(self, *, is_baseline: bool = False) -> Iterator[None]:
        """Record the duration of the measurement in the ``with`` block."""
        self._ended = 0
        self._may_warn = is_baseline and self._run.config.time is None
        yield
        if self._ended:
            self._measured = (time.monotonic() - self._began) / self._ended

    def rollout_ended(self, trajectory: Trajectory) -> None:
        """Count a rollout; raise TrainingInterrupted after a Ctrl-C."""
        if not self._ended:  # the start of the workers is not included
            self._began = time.monotonic() - trajectory.duration_s
        self._ended += 1
        self._warn_of_long_baseline(time.monotonic() - self._began)
        self._run.progress(events.RolloutDone())
        self._run.check_interrupt()

    def _warn_of_long_baseline(self, taken: float) -> None:
        """Warn, once, if the baseline will take over ten minutes."""
        is_early = self._ended < _LEAST_ROLLOUTS or taken < _LEAST_WAIT_S
        total = taken / self._ended * self._held_out
        if is_early or total < _LONG_S or not self._may_warn:
            return
        self._may_warn = False
        text = (
            f"At this pace the {self._held_out:,} rollouts of the baseline take about "
            f"{duration(total)}, and as many come at the end. `--time 30m` sizes the "
            "whole run to 30 minutes; `--set test_tasks=24 --set eval_samples=1` "
            "measures less."
        )
        self._run.progress(events.Warned(text))

    def step_ended(self, rollouts: int, seconds: float) -> float:
        """Record a step's time; return the most seconds that the run still takes."""
        self._steps.append((rollouts, seconds))
        return self._left() or 0.0

    def report_time_left(self, imitated: int = 0) -> None:
        """Report the time left; a warm start will yet imitate ``imitated`` rollouts."""
        if left := self._left(imitated):
            self._run.progress(events.TimeLeft(left))

    def _left(self, imitated: int = 0) -> float | None:
        """Return the most seconds that the rest of the run takes; None if unknown."""
        config, state = self._run.config, self._run.state
        measured, newest = self._measured, self._steps[-_NEWEST:]
        if newest:
            counts, times = zip(*newest, strict=True)
            each = sum(times) / sum(counts)
        elif measured is not None:
            each = measured * _STEP_PER_ROLLOUT
        else:
            return None
        rollouts = max(0, config.episodes - state.episodes)
        steps = math.ceil(rollouts / (config.group_size * config.tasks_per_step))
        validations = config.validations(state.step + steps)
        rest = config.eval_tasks * (validations - state.step // config.eval_every)
        rest += self._held_out
        if imitated:
            rest += self._held_out + config.eval_tasks + imitated
        seconds = rollouts * each + rest * (each if measured is None else measured)
        if config.time is not None:
            seconds = min(seconds, max(0.0, config.time - state.wall_seconds))
        return float(seconds)
