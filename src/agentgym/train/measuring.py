"""Measuring the policy while a run goes on: held-out and validation tasks, the goal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.base import Engine
from agentgym.evaluate.criteria import criteria_hold
from agentgym.evaluate.evaluation import attempt
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import Progress
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks, needs_of
from agentgym.train.run_folder import RunState


@dataclass(frozen=True)
class Measuring:
    """What is measured of a run's policy, and whether that is good enough.

    The best of many measurements is better than the policy is. So where a validation
    would end training, as many other tasks are measured, and all of them count. Where
    there are no others, the same ones are attempted once more.

    Attributes:
        config: Every setting.
        scenario: Whose tasks and criteria they are.
        state: Where the newest validation is kept.
        engine: Whose policy it is.
        session: What runs the rollouts.
        progress: Told of each phase.
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
        """Whether the criteria hold on validation tasks, together with others."""
        return self._is_good(self.state.confirmation)

    @property
    def patience_spent(self) -> bool:
        """Whether validation has told against the run for too long."""
        spent = self.state.watch.strikes >= self.config.patience
        return self.config.early_stop and spent

    def validate(self) -> Metrics:
        """Measure what is missing of this step's validation, and return it."""
        state, size = self.state, self.config.eval_tasks
        if state.validation is None:
            state.validation = self._validation("v", 0, size)
        if self._is_unconfirmed:
            others = self._validation("c", size, 2 * size)
            tasks = [*state.validation.by_task, *others.by_task]
            state.confirmation = Metrics.of_tasks(tasks, k=1)
        self.progress.validated(state.step, state.validation, self.goal_reached)
        self._watch(state.validation)
        return state.validation

    def _watch(self, found: Metrics) -> None:
        state, patience = self.state, self.config.patience
        if not state.step:
            state.first_validation = found
        start = state.first_validation or state.start
        remarks = state.watch.look(state.step, found, start, patience)
        if remarks and not self.goal_reached:
            self.progress.warned([remark.text for remark in remarks])

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
        return {name: done[f"{phase} {name}"] for name in sets}

    def _is_good(self, found: Metrics | None) -> bool:
        """Whether training ends early where this is what was measured."""
        return (
            self.config.early_stop
            and found is not None
            and criteria_hold(self.scenario.success_criteria(), found)
        )

    def _validation(self, prefix: str, first: int, end: int) -> Metrics:
        """Measure the validation tasks from ``first`` to before ``end``, once each."""
        step = self.state.step
        made = make_tasks(self.scenario, Split.VALIDATION, self.config.seed, end)
        tasks = made[first:] or made
        name = f"{prefix}{step:05d}"
        self.progress.phase("validation", len(tasks))
        return self._measure({name: tasks}, samples=1, step=step)[name]

    def _measure(
        self, sets: Mapping[str, Sequence[Task]], *, samples: int, step: int
    ) -> dict[str, Metrics]:
        with self.engine.sampling():
            made = attempt(self.session, sets, samples, self.on_rollout, step=step)
        return {
            name: Metrics.of(
                found, k=samples, needs=needs_of(self.scenario, sets[name])
            )
            for name, found in made.items()
        }
