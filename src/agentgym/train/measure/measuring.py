"""Measuring: measure the policy of a run, and decide whether the goal is reached."""

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
from agentgym.evaluate.compare import solves_more
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
"""Least number of rollouts to confirm a goal: 12 successes in 12 rollouts are weak
evidence of a success rate of 90 %."""
_TIMED_SHARE, _LEAST_TIMED = 0.8, 0.5
"""Shares of the rollouts that the timing waits for: normally, and if timing takes long.

One very long answer would distort the time: in a run, other rollouts go on meanwhile.
"""
_ERRORS = 0.84
"""A confirmation (a second measurement, after a validation reached the goal) must
exceed the goal by this number of standard errors. A policy exactly at the goal then
passes one confirmation in five; without a margin, one in two."""


class _EnoughTimed(Exception):
    """Raised to stop timing rollouts before the slowest ones have ended."""


@dataclass(frozen=True)
class Measuring:
    """Measures a run's policy, and decides whether the goal is reached.

    The goal is that the scenario's success criteria hold. One of many validations may
    reach the goal by chance. So a second measurement follows, the confirmation. It uses
    the next tasks of the validation split, or the same tasks if there are no more. The
    confirmation must exceed the criteria by a margin.

    Attributes:
        state: The run's state, which keeps the newest validation.
        on_rollout: Called when a rollout ends; may raise to stop the measurement.
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
        """Whether a validation or a confirmation must still run at this step."""
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
        """Whether the confirmation exceeds the success criteria by the margin."""
        found = self.state.confirmation
        return self._is_good(found) and criteria_hold(
            self.scenario.success_criteria(), found, errors=_ERRORS
        )

    @property
    def patience_spent(self) -> bool:
        """Whether training should stop because validations do not improve any more."""
        spent = self.state.watch.strikes >= self.config.patience
        return self.config.early_stop and spent

    def validate(self) -> Metrics:
        """Run this step's validation, and return its metrics.

        If the validation reaches the goal, the confirmation (see :class:`Measuring`)
        follows. Results that the state already has are not measured again.
        """
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
        """Let the untrained model answer everyday questions, for later comparisons."""
        config, state = self.config, self.state
        if state.forgetting is None:
            rollouts = config.episodes + 2 * config.test_tasks * config.eval_samples
            state.forgetting = ask_questions(
                self.engine, config, rollouts, state.rollout_seconds
            )

    def _compare(self, *, warns: bool = False) -> None:
        """Measure how much training changed the answers to everyday questions.

        ``warns``: whether to warn the user if the change is large.
        """
        if self.state.forgetting is None:
            return
        found = self.state.forgetting = compare(self.engine, self.state.forgetting)
        if warns and found.is_large:
            self.progress.warned([f"On everyday questions: {found.words()}."])

    def _watch(self, found: Metrics) -> None:
        state, patience = self.state, self.config.patience
        if not state.step:
            state.first_validation = found
        start = state.first_validation or state.start
        remarks = state.watch.add(state.step, found, start, patience)
        if remarks and not self.goal_reached:
            self.progress.warned([remark.text for remark in remarks])

    def time_rollouts(self, count: int, most_s: float) -> float:
        """Run ``count`` rollouts at once; return the wall seconds per rollout.

        The start of the workers does not count, since it happens once per run. The
        timing waits for most rollouts and abandons the slowest. After ``most_s``
        seconds, it waits only for half of them.
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
        """Measure the policy on every held-out set; return the metrics by set's name.

        The main set comes first; other sets may have e.g. harder tasks. ``phase`` says
        when this is: ``before`` training, ``warmed`` (after a warm start) or ``after``
        training. ``step`` is recorded with the rollouts: a resumed run deletes rollouts
        of steps after its checkpoint.
        """
        config = self.config
        sets = held_out_sets(self.scenario, config.seed, config.test_tasks)
        self.progress.phase(phase, config.eval_samples * sum(map(len, sets.values())))
        made = {f"{phase} {name}": tasks for name, tasks in sets.items()}
        done = self._measure(made, samples=config.eval_samples, step=step)
        cut = max(found.answers_cut.value for found in done.values())
        if warning := cut_words(cut, config.answer_tokens):
            self.progress.warned([warning])
        return {name: done[f"{phase} {name}"] for name in sets}

    def at_end(self, weights: int) -> dict[str, Metrics]:
        """Return the held-out metrics of the trained agent's weights, by set.

        The engine has already loaded these weights; ``weights`` is their step. The
        weights of a warm start (step 0) were measured before, so their earlier metrics
        are returned.
        """
        state = self.state
        found = state.warmed if not weights else {}
        found = found or self.held_out("after", step=state.step + 1)
        self._compare(warns=True)
        return found

    def _fresh(self, name: str) -> Metrics:
        """Measure the policy on validation tasks that the run has not used before.

        ``name`` says which weights are loaded: ``best`` (those of the best validation)
        or ``first`` (those of the warm start).
        """
        return self._validation(f"{name}-", self._unused, later=True)

    @property
    def _unused(self) -> int:
        """Index of the first validation task that no measurement has used."""
        return self.config.eval_tasks * (1 + self.state.confirmations)

    def load_best_weights(self, run: RunFolder, *, goal_reached: bool) -> int:
        """Choose the weights of the trained agent, load them, and return their step.

        If the goal was reached, the newest weights are chosen, since a confirmation has
        measured them too. Otherwise those of the best validation are chosen.

        After a warm start, the best of many validations may be best by chance. So the
        chosen weights must solve significantly more unused tasks than the warm start's
        weights; otherwise the warm start's weights are loaded. If the best validation
        is that of the warm start, the newest weights take this test, unless they were
        validated before.
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
            if not solves_more(before, found):
                return 0
        if step != state.step or first is not None:
            engine.load_checkpoint(best)
        return step

    def _is_good(self, found: Metrics | None) -> TypeGuard[Metrics]:
        """Return whether a measurement meets the success criteria.

        Always False if ``early_stop`` is off.
        """
        return (
            self.config.early_stop
            and found is not None
            and criteria_hold(self.scenario.success_criteria(), found)
        )

    def _validation(
        self, prefix: str, first: int, *, least: int = 0, later: bool = False
    ) -> Metrics:
        """Measure the policy on ``eval_tasks`` validation tasks from index ``first``.

        If the scenario has no such tasks, the first ones are used. The measurement's
        name begins with ``prefix``. Tasks are attempted several times if this is needed
        for ``least`` rollouts. ``later``: whether a resumed run must repeat this
        measurement.
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
