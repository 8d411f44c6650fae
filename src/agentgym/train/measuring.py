"""Measuring the policy while a run goes on: held-out and validation tasks, the goal."""

from collections.abc import Callable, Mapping, Sequence

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.base import Engine
from agentgym.evaluate.evaluation import criteria_hold, measure
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import Progress
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.train.run_folder import RunState


class Measuring:
    """What is measured of a run's policy, and whether that is good enough.

    The best of many measurements is better than the policy is. So where a validation
    would end training, as many other tasks are measured, and all of them count. Where
    there are no others, the same ones are attempted once more.

    Args:
        config: Every setting.
        scenario: Whose tasks and criteria they are.
        state: Where the newest validation is kept.
        engine: Whose policy it is.
        session: What runs the rollouts.
        progress: Told of each phase.
        on_rollout: Called as each ends; may raise to give up.
    """

    def __init__(
        self,
        config: TrainingConfig,
        scenario: Scenario,
        state: RunState,
        engine: Engine,
        session: RolloutSession,
        progress: Progress,
        on_rollout: Callable[[Trajectory], None],
    ) -> None:
        self._config = config
        self._scenario = scenario
        self._criteria = scenario.success_criteria()
        self._state = state
        self._engine = engine
        self._session = session
        self._progress = progress
        self._on_rollout = on_rollout

    @property
    def is_due(self) -> bool:
        """Whether this step has validation tasks to measure that were not yet."""
        state = self._state
        if not state.step or state.step % self._config.eval_every:
            return False
        return state.validation is None or (
            state.confirmation is None and self._is_promising
        )

    @property
    def goal_reached(self) -> bool:
        """Whether the criteria hold on validation tasks, together with others."""
        confirmed = self._state.confirmation
        return (
            self._config.early_stop
            and confirmed is not None
            and criteria_hold(self._criteria, confirmed)
        )

    def validate(self) -> Metrics:
        """Measure what is missing of this step's validation, and return it."""
        state, size = self._state, self._config.eval_tasks
        if state.validation is None:
            state.validation = self._validation("v", 0, size)
        if state.confirmation is None and self._is_promising:
            others = self._validation("c", size, 2 * size)
            tasks = [*state.validation.by_task, *others.by_task]
            state.confirmation = Metrics.of_tasks(tasks, k=1)
        self._progress.validated(state.step, state.validation, self.goal_reached)
        return state.validation

    def held_out(self, phase: str, *, step: int) -> dict[str, Metrics]:
        """Measure the policy on every held-out set of the scenario, main one first.

        Args:
            phase: ``before`` or ``after``.
            step: A resumed run forgets the rollouts of later steps than its own.
        """
        config = self._config
        sets = held_out_sets(self._scenario, config.seed, config.test_tasks)
        self._progress.phase(phase, config.eval_samples * sum(map(len, sets.values())))
        made = {f"{phase} {name}": tasks for name, tasks in sets.items()}
        done = self._measure(made, samples=config.eval_samples, step=step)
        return {name: done[f"{phase} {name}"] for name in sets}

    @property
    def _is_promising(self) -> bool:
        found = self._state.validation
        return (
            self._config.early_stop
            and found is not None
            and criteria_hold(self._criteria, found)
        )

    def _validation(self, prefix: str, first: int, end: int) -> Metrics:
        """Measure the validation tasks from ``first`` to before ``end``, once each."""
        step = self._state.step
        made = make_tasks(self._scenario, Split.VALIDATION, self._config.seed, end)
        tasks = made[first:] or made
        name = f"{prefix}{step:05d}"
        self._progress.phase("validation", len(tasks))
        return self._measure({name: tasks}, samples=1, step=step)[name]

    def _measure(
        self, sets: Mapping[str, Sequence[Task]], *, samples: int, step: int
    ) -> dict[str, Metrics]:
        with self._engine.sampling():
            return measure(self._session, sets, samples, self._on_rollout, step=step)
