"""Measuring the policy while a run goes on: held-out and validation tasks, the goal."""

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
"""Rollouts that confirm a goal, at least: 12 of 12 say little of 90 %."""
_TIMED_SHARE, _LEAST_TIMED = 0.8, 0.5
"""Shares of the timed rollouts that are waited for: usually, and where it takes long.

One answer that goes on and on would be taken for the usual, while in a run others are
sampled at the same time.
"""
_ERRORS = 0.84
"""Standard errors by which a goal must be exceeded where it is confirmed: a policy that
misses it by as much as one passes one look in five, and there are many looks."""


class _EnoughTimed(Exception):
    """Ends the timing of rollouts while the last ones go on."""


@dataclass(frozen=True)
class Measuring:
    """Measures a run's policy, and decides whether it is good enough.

    The best of many measurements is better than the policy is. So where a validation
    would end training, as many other tasks are measured, which alone decide: by as much
    as chance may have added. Where there are no others, the same ones are attempted
    again.

    Attributes:
        config: Every setting.
        scenario: Whose tasks and criteria they are.
        state: Where the newest validation is kept.
        engine: Whose policy it is.
        session: Runs the rollouts.
        progress: Receives the phases.
        on_rollout: Called as each ends; may raise to give up.
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
        """Whether this step has validation tasks to measure that were not yet."""
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
        """Whether the criteria hold on validation tasks, and on others beyond doubt."""
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
        """Measure the missing parts of this step's validation, and return it."""
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
        """Let the untrained model answer plain questions, to compare with later."""
        config, state = self.config, self.state
        if state.forgetting is None:
            rollouts = config.episodes + 2 * config.test_tasks * config.eval_samples
            state.forgetting = ask_questions(
                self.engine, config, rollouts, state.rollout_seconds
            )

    def _compare(self, *, warns: bool = False) -> None:
        """Measure how far the model has moved on plain questions, and say so if far."""
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
        """Return the wall seconds per rollout where ``count`` run at once.

        They are timed from the start of the first one: workers start only once. The
        last ones are given up.

        Args:
            count: Rollouts.
            most_s: Seconds after which fewer of them are enough.
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
        """Measure the policy on every held-out set of the scenario, main one first.

        Args:
            phase: ``before``, ``warmed`` or ``after``.
            step: A resumed run forgets the rollouts of later steps than its own.
        """
        config = self.config
        sets = held_out_sets(self.scenario, config.seed, config.test_tasks)
        self.progress.phase(phase, config.eval_samples * sum(map(len, sets.values())))
        made = {f"{phase} {name}": tasks for name, tasks in sets.items()}
        done = self._measure(made, samples=config.eval_samples, step=step)
        cut = max(found.answers_cut.value for found in done.values())
        if told := cut_words(cut, config.answer_tokens):
            self.progress.warned([told])
        if phase == "after":
            self._compare(warns=True)
        return {name: done[f"{phase} {name}"] for name in sets}

    def _fresh(self, name: str) -> Metrics:
        """Measure the policy on tasks that decide nothing while a run goes on.

        Args:
            name: Of these weights.
        """
        return self._validation(f"{name}-", self._unused, later=True)

    @property
    def _unused(self) -> int:
        """Validation tasks that were measured: each confirmation takes further ones."""
        return self.config.eval_tasks * (1 + self.state.confirmations)

    def load_best_weights(self, run: RunFolder, *, goal_reached: bool) -> int:
        """Load the weights that the agent gets, and return their step.

        Where the goal was reached the newest are taken: more tasks have confirmed them.
        Else those of the best validation are. Of many validations the best is better
        than its weights are; so where a warm start came first, both are measured once
        more on tasks that no validation used, and the warm start's stay unless the best
        ones solve more of these, beyond chance.
        """
        state, engine = self.state, self.engine
        best, step = run.best_checkpoint(state), state.watch.best_step
        first = run.first_checkpoint(state)
        if goal_reached or best is None:
            return state.step
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
        """Whether training ends early with this measurement."""
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
            prefix: Of the measurement's name.
            first: Of the tasks; the first ones again where there are not so many.
            least: Rollouts; tasks are attempted several times where there are fewer.
            later: Whether a resumed run repeats the measurements of this step.
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
