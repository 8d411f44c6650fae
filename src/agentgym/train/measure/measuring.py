"""Measuring: held-out and validation measurements of a run, and its goal."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeGuard

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.base import Engine
from agentgym.evaluate.compare import is_beyond_chance
from agentgym.evaluate.criteria import criteria_hold
from agentgym.evaluate.evaluation import attempt
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.outlook import cut_words
from agentgym.evaluate.progress import Progress
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks, needs_of
from agentgym.train.measure.forgetting import ask_questions, compare
from agentgym.train.run_folder import RunFolder, RunState

_CONFIRMED = 48
"""Least rollouts that confirm a goal: 12 of 12 successes are weak evidence of 90 %."""
_TIMED_SHARE, _LEAST_TIMED = 0.8, 0.5
"""Shares of the timed rollouts to wait for: normally, and if they take too long.

One very long answer would distort the time, while in a run other rollouts go on.
"""
_ERRORS = 0.84
"""Standard errors by which confirmed success must exceed the goal: a policy this far
below it passes one test in five, and there are many tests."""


class _EnoughTimed(Exception):
    """Ends the timing while the last rollouts are running."""


@dataclass(frozen=True)
class Measuring:
    """Measures a run's policy, and decides whether the goal is reached.

    The best of many measurements overestimates the policy. So if a validation would end
    training, as many other tasks are measured, and these decide: they must exceed the
    goal by a margin for chance. If there are no others, the same tasks are attempted
    again.

    Attributes:
        config: Every setting.
        scenario: The scenario with the tasks and criteria.
        state: The run's state, which keeps the newest validation.
        engine: The engine with the policy.
        session: Runs the rollouts.
        progress: Receives the phases.
        on_rollout: Called when a rollout ends; may raise to give up.
    """

    config: TrainingConfig
    scenario: Scenario
    state: RunState
    engine: Engine
    session: RolloutSession
    progress: Progress
    on_rollout: Callable[[Trajectory], None]

    @property
    def is_due(self) -> bool:
        """Whether this step has validation tasks that are not measured yet."""
        state = self.state
        if state.step % self.config.eval_every or not (state.step or state.warmed):
            return False
        return state.validation is None or self._is_unconfirmed

    @property
    def _is_unconfirmed(self) -> bool:
        state = self.state
        return state.confirmation is None and self._is_good(state.validation)

    @property
    def goal_reached(self) -> bool:
        """Whether the criteria hold on validation tasks and, clearly, on others."""
        found = self.state.confirmation
        return self._is_good(found) and criteria_hold(
            self.scenario.success_criteria(), found, errors=_ERRORS
        )

    @property
    def patience_spent(self) -> bool:
        """Whether validation has not improved for too long."""
        spent = self.state.watch.strikes >= self.config.patience
        return self.config.early_stop and spent

    def validate(self) -> Metrics:
        """Measure the missing parts of this step's validation; return its metrics."""
        state = self.state
        if state.validation is None:
            state.validation = self._validation("v", 0)
        if self._is_unconfirmed:
            state.confirmation = self._validation("c", self._unused, least=_CONFIRMED)
            state.confirmations += 1
        self.progress.validated(state.step, state.validation, self.goal_reached)
        self._watch(state.validation)
        self._compare()
        return state.validation

    def ask_questions(self) -> None:
        """Record the untrained model's answers to plain questions, to compare later."""
        config, state = self.config, self.state
        if state.forgetting is None:
            rollouts = config.episodes + 2 * config.test_tasks * config.eval_samples
            state.forgetting = ask_questions(
                self.engine, config, rollouts, state.rollout_seconds
            )

    def _compare(self, *, warns: bool = False) -> None:
        """Measure the distance on plain questions; report it if it is large."""
        if self.state.forgetting is None:
            return
        found = self.state.forgetting = compare(self.engine, self.state.forgetting)
        if warns and found.is_large:
            self.progress.warned([f"On plain questions: {found.words()}."])

    def _watch(self, found: Metrics) -> None:
        state, patience = self.state, self.config.patience
        if not state.step:
            state.first_validation = found
        start = state.first_validation or state.start
        remarks = state.watch.look(state.step, found, start, patience)
        if remarks and not self.goal_reached:
            self.progress.warned([remark.text for remark in remarks])

    def time_rollouts(self, count: int, most_s: float) -> float:
        """Return the wall seconds per rollout with ``count`` of them in flight.

        Timing begins with the first rollout's start, since workers start only once. The
        last rollouts are abandoned.

        Args:
            count: Number of rollouts.
            most_s: Seconds after which fewer rollouts suffice.
        """
        made = make_tasks(self.scenario, Split.VALIDATION, self.config.seed, count)
        samples = math.ceil(count / len(made))
        total = samples * len(made)
        usual, least = (
            math.ceil(share * total) for share in (_TIMED_SHARE, _LEAST_TIMED)
        )
        self.progress.phase("timing", total)
        begun, ended = math.inf, 0

        def note(trajectory: Trajectory) -> None:
            nonlocal begun, ended
            ended += 1
            begun = min(begun, time.monotonic() - trajectory.duration_s)
            self.on_rollout(trajectory)
            is_long = time.monotonic() - begun > most_s
            if ended >= (least if is_long else usual):
                raise _EnoughTimed

        step = self.state.step + 1
        with suppress(_EnoughTimed):
            self._measure({"timing": made}, samples=samples, step=step, on_rollout=note)
        return (time.monotonic() - begun) / ended

    def held_out(self, phase: str, *, step: int) -> dict[str, Metrics]:
        """Measure the policy on every held-out set of the scenario, the main one first.

        Args:
            phase: ``before``, ``warmed`` or ``after``.
            step: Training step; a resumed run deletes the rollouts of later steps.
        """
        config = self.config
        sets = held_out_sets(self.scenario, config.seed, config.test_tasks)
        self.progress.phase(phase, config.eval_samples * sum(map(len, sets.values())))
        made = {f"{phase} {name}": tasks for name, tasks in sets.items()}
        done = self._measure(made, samples=config.eval_samples, step=step)
        cut = max(found.answers_cut.value for found in done.values())
        if told := cut_words(cut, config.answer_tokens):
            self.progress.warned([told])
        return {name: done[f"{phase} {name}"] for name in sets}

    def at_end(self, weights: int) -> dict[str, Metrics]:
        """Measure the trained agent's weights on every held-out set.

        Those of a warm start are measured already.

        Args:
            weights: The step of the weights, which the engine has loaded.
        """
        state = self.state
        found = state.warmed if not weights else {}
        found = found or self.held_out("after", step=state.step + 1)
        self._compare(warns=True)
        return found

    def _fresh(self, name: str) -> Metrics:
        """Measure the policy on validation tasks that decided nothing during the run.

        Args:
            name: Name of these weights.
        """
        return self._validation(f"{name}-", self._unused, later=True)

    @property
    def _unused(self) -> int:
        """Number of validation tasks already used: each confirmation takes new ones."""
        return self.config.eval_tasks * (1 + self.state.confirmations)

    def load_best_weights(self, run: RunFolder, *, goal_reached: bool) -> int:
        """Load the weights for the trained agent; return their step.

        If the goal was reached, these are the newest: more tasks have confirmed them.
        Else they are those of the best validation. The best of many validations
        overestimates its weights. So after a warm start, both are measured on unused
        tasks, and the warm start's weights are kept unless the others solve
        significantly more. If no validation was better than the warm start's, the
        newest weights are measured instead, unless they were validated.
        """
        state, engine = self.state, self.engine
        best, step = run.best_checkpoint(state), state.watch.best_step
        first = run.first_checkpoint(state)
        if goal_reached or best is None:
            return state.step
        if best == first and state.step % self.config.eval_every:
            best, step = run.checkpoints()[-1], state.step
        if first is not None and best != first:
            engine.load_checkpoint(best)
            found = self._fresh("best")
            engine.load_checkpoint(first)
            before = self._fresh("first")
            if not (found.pass_1 > before.pass_1 and is_beyond_chance(before, found)):
                return 0
        if step != state.step or first is not None:
            engine.load_checkpoint(best)
        return step

    def _is_good(self, found: Metrics | None) -> TypeGuard[Metrics]:
        """Return whether this measurement ends training early."""
        return (
            self.config.early_stop
            and found is not None
            and criteria_hold(self.scenario.success_criteria(), found)
        )

    def _validation(
        self, prefix: str, first: int, *, least: int = 0, later: bool = False
    ) -> Metrics:
        """Measure as many validation tasks as one validation has.

        Args:
            prefix: Prefix of the measurement's name.
            first: Index of the first task; beyond the last one it starts again.
            least: Least rollouts; with fewer tasks, each is attempted several times.
            later: Whether a resumed run repeats this step's measurements.
        """
        step, size = self.state.step, self.config.eval_tasks
        end = first + size
        made = make_tasks(self.scenario, Split.VALIDATION, self.config.seed, end)
        tasks = made[first:] or made[:size]
        samples = max(1, math.ceil(least / len(tasks)))
        name = f"{prefix}{step:05d}"
        self.progress.phase("validation", samples * len(tasks))
        return self._measure({name: tasks}, samples=samples, step=step + later)[name]

    def _measure(
        self,
        sets: Mapping[str, Sequence[Task]],
        *,
        samples: int,
        step: int,
        on_rollout: Callable[[Trajectory], None] | None = None,
    ) -> dict[str, Metrics]:
        done = on_rollout or self.on_rollout
        with self.engine.sampling():
            made = attempt(self.session, sets, samples, done, step=step)
        return {
            name: Metrics.of(
                found, k=samples, needs=needs_of(self.scenario, sets[name])
            )
            for name, found in made.items()
        }
