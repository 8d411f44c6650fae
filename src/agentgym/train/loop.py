"""TrainingLoop: the algorithm of a run, from the first measurement to the agent.

A step samples groups of attempts at tasks, has a judge rank them, turns their rewards
into advantages (``train/batch.py``, ``engines/credit.py``), updates the policy with its
loss (``engines/local/loss.py``), validates it and saves. Other files have the rest of a
run: ``run_context`` (start, disk, Ctrl-C), ``time_limit``, ``before_training`` (warm
start, questions) and ``validation``.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentgym.core.components import tokens_name
from agentgym.core.task import Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.base import UpdateMetrics
from agentgym.engines.registry import create_engine
from agentgym.errors import TrainingFailedError, TrainingInterrupted
from agentgym.evaluate import events
from agentgym.evaluate.events import Observer, Plan, StepReport
from agentgym.evaluate.metrics import Metrics, TaskResult, check_roles
from agentgym.evaluate.ranker import Ranker, open_judge
from agentgym.rollout.runner import RolloutRequest
from agentgym.train.batch import BatchBuilder, Credited, credit_lines, report_step
from agentgym.train.before_training import (
    ask_whether_to_train,
    offer_warm_start,
    warm_start,
)
from agentgym.train.resource_use import Began
from agentgym.train.run_context import RunContext
from agentgym.train.run_folder import RunFolder
from agentgym.train.stopping import ENDS, SPENT, TIME_SPENT
from agentgym.train.tasks import TaskStream
from agentgym.train.time_limit import RunClock
from agentgym.train.tracking import open_tracker
from agentgym.train.validation import Evaluator

if TYPE_CHECKING:
    from agentgym.train.result import TrainingResult


class TrainingLoop:
    """Executes one training run.

    The caller has checked the plan and locked the run's folder. The run's time limit
    and its CPU seconds count from ``began``.
    """

    def __init__(
        self, plan: Plan, folder: RunFolder, progress: Observer, began: Began
    ) -> None:
        self._run = RunContext(plan, folder, progress, began)
        self._clock = RunClock(self._run)
        self._evaluator = Evaluator(self._run, self._clock.rollout_ended)

    def run(self) -> "TrainingResult":
        """Start or resume the run, and return its result."""
        run = self._run
        with (
            run.engine_started(create_engine),
            self._best_weights_kept(),
            run.workers_started(),
        ):
            offer = self._measure_untrained()
            if not run.state.step:
                ask_whether_to_train(run, offer)
            stopped = self._train()
            run.progress(events.Ended(stopped, run.state.ledger))
            return self._finish(stopped)

    def _measure_untrained(self) -> str:
        """Measure, warm-start and measure again; return a refused offer of the latter.

        A resumed run skips the parts that it has done.
        """
        run, evaluator, clock = self._run, self._evaluator, self._clock
        state = run.state
        if not state.baseline:
            clock.fit(evaluator.time_rollouts)
            evaluator.ask_questions()
            with clock.measuring(is_baseline=True):
                state.baseline = evaluator.held_out("before", step=0)
            check_roles(run.config.train_roles, state.baseline.values())
            run.save()
        run.progress(events.BaselineMeasured(next(iter(state.baseline.values()))))
        offer = offer_warm_start(run)
        clock.fit_rest()
        if run.config.warm_start:
            warm_start(run, evaluator, clock)
            clock.fit_rest()
        if not state.stopping.samples:
            state.stopping.add_validation(0, state.start, evaluator.goal)
        if evaluator.is_due(self._steps_left) and clock.has_room:
            evaluator.validate(self._steps_left)
            run.save()
        clock.report_time_left()
        return offer

    def _train(self) -> str:
        """Do training steps until the run should stop; return why it stops."""
        run, config, state = self._run, self._run.config, self._run.state
        scenario, engine = run.scenario, run.engine
        tasks = TaskStream(scenario, config, state.stream)
        builder = BatchBuilder.of(config, scenario, engine.label, engine.allowed)
        state.ledger.tokens = tokens_name(builder.trainable)
        judge = open_judge(config, state.ledger, run.progress, beat=run.check_interrupt)
        with open_tracker(config, run.folder.path) as track:
            for step in self._steps():
                begun = time.monotonic()
                # a list of trajectories per task, their rewards ranked by the judge
                groups, verdicts = self._sample(tasks, builder, judge, step)
                sampled = time.monotonic()
                # advantages of the trained tokens: reward minus the group's mean, etc.
                credited = builder.build(groups, scenario.broadcast_rewards)
                credited.batch.spent = self._clock.spent  # for the learning rate
                # loss, gradients, one step of the optimizer
                update = engine.update(credited.batch)
                self._account(credited, update)
                run.append_credit(credit_lines(credited, verdicts, update))
                # results of whole episodes alone say how good the policy is
                is_whole = run.sampling.is_whole
                new = [g for g in groups if is_whole and tasks.is_new(g)]
                run.sampling.learned(credited.rollouts)
                self._record_signals(step - 1, new, credited)
                report = self._report(credited, update, begun, sampled)
                measured = self._validate(report, tasks)  # may set state.end
                self._end_if_collapsed(report)
                track(report, measured)
                run.save(report, measured)
        if state.end is not None:
            return ENDS[state.end]
        return TIME_SPENT if self._steps_left else SPENT

    def _steps(self) -> Iterator[int]:
        """Yield the numbers of the remaining steps, as long as there is time."""
        state = self._run.state
        if state.training_began is None:
            state.training_began = state.wall_seconds
        while self._steps_left and state.end is None:
            if not self._clock.has_room:
                self._clock.check_trained()
                return
            yield state.step + 1
            self._run.check_interrupt()

    @property
    def _steps_left(self) -> int:
        """Number of steps that the budget still allows."""
        return math.ceil(self._groups_left / self._run.config.tasks_per_step)

    @property
    def _groups_left(self) -> int:
        """Number of whole groups of rollouts that the budget still allows."""
        config = self._run.config
        return max(0, config.episodes - self._run.state.episodes) // config.group_size

    def _sample(
        self, tasks: TaskStream, builder: BatchBuilder, judge: Ranker, step: int
    ) -> tuple[Sequence[Sequence[Trajectory]], dict[str, Any]]:
        """Run a step's rollouts; return their groups, and the judge's verdicts.

        A group has the attempts at one task. The judge adds its ranking to their
        rewards; its verdicts are by rollout id, none in a private run. Groups without a
        training signal are replaced.
        """
        verdicts: dict[str, Any] = {}

        def attempt(chosen: Sequence[Task], first: int) -> list[list[Trajectory]]:
            ranked = judge.ranked(self._attempt(chosen, step, first))
            if not self._run.config.private:
                verdicts.update(judge.verdicts)
            return ranked

        broadcast = self._run.scenario.broadcast_rewards
        groups = tasks.groups(
            self._groups_left, attempt, lambda g: builder.has_signal(g, broadcast)
        )
        return groups, verdicts

    def _attempt(
        self, tasks: Sequence[Task], step: int, first: int
    ) -> list[list[Trajectory]]:
        """Attempt each task ``group_size`` times; return one group per task.

        The groups of a step are numbered; ``first`` is the number of the first group.
        """
        run, size = self._run, self._run.config.group_size
        requests = RolloutRequest.of_groups(tasks, size, step, first)
        run.progress(events.PhaseStarted("rollouts", len(requests)))
        run.sampling.begin(requests)
        with run.engine.sampling():
            found = run.session.run(requests, self._clock.rollout_ended)
        found = run.sampling.credited(found)
        if not first and all(t.status is RolloutStatus.DROPPED for t in found):
            raise TrainingFailedError(
                f"Every rollout of step {step} was dropped: {found[0].reason}. "
                f"See `agentgym doctor {run.folder.path}`."
            )
        return [found[i : i + size] for i in range(0, len(found), size)]

    def _account(self, credited: Credited, update: UpdateMetrics) -> None:
        """Count the step and its rollouts, and record how each model call was used."""
        state = self._run.state
        credited.conclude(update)
        for trajectory in credited.rollouts:
            buckets = credited.ledger[trajectory.rollout_id]
            state.ledger.add_rollout(trajectory, buckets)
            state.episodes += 1
        state.step = update.step
        if self._evaluator.is_time(self._steps_left):
            state.validation = None

    def _record_signals(
        self, updates: int, new: Sequence[Sequence[Trajectory]], credited: Credited
    ) -> None:
        """Record new tasks' results after ``updates``, to decide when the run ends."""
        results = [TaskResult.of(group, None) for group in new]
        groups = len(credited.groups)
        signals = groups - credited.skipped_groups, credited.solved_groups, groups
        self._run.state.stopping.add_step(
            updates, results, self._evaluator.goal, signals
        )

    def _report(
        self, credited: Credited, update: UpdateMetrics, begun: float, sampled: float
    ) -> StepReport:
        """Return a step's report; its rollouts ran from ``begun`` to ``sampled``."""
        now, done = time.monotonic(), self._run.state.episodes
        left = self._clock.step_ended(len(credited.rollouts), now - begun)
        times = (sampled - begun, now - sampled)
        budget = self._run.config.episodes
        return report_step(credited, update, times, done, budget, left)

    def _validate(self, report: StepReport, tasks: TaskStream) -> Metrics | None:
        """Run a validation and return its metrics; return None if none is due."""
        if not self._evaluator.is_due(self._steps_left):
            return None
        try:
            with self._clock.measuring():
                return self._evaluator.validate(self._steps_left, tasks.trained)
        except TrainingInterrupted:
            # The step itself is finished.
            self._run.save(report)
            self._run.check_interrupt()
            raise

    def _end_if_collapsed(self, report: StepReport) -> None:
        """End the run if the policy has stopped calling the right tools."""
        state, share = self._run.state, report.right_tool
        if share is None or not self._run.config.early_stop:
            return
        state.stopping.right_tool.append(share)
        if state.stopping.has_collapsed(state.start.right_tool.value):
            state.end = "collapsed"

    def _finish(self, stopped: str) -> "TrainingResult":
        """Measure the best weights, export them, and write and return the result."""
        from agentgym.train.result import finish

        run, evaluator = self._run, self._evaluator
        _require_trained(run)
        weights = evaluator.load_best_weights(self._steps_left)
        return finish(run, stopped, weights, evaluator.at_end(weights))

    @contextmanager
    def _best_weights_kept(self) -> Iterator[None]:
        """Save the best validated weights as a version if the run is interrupted."""
        run = self._run
        try:
            yield
        except (TrainingInterrupted, KeyboardInterrupt):
            if not run.interrupt.requested:
                raise
            run.interrupt.wait(0)  # this signal has been handled
            from agentgym.train.export import export_best

            error = run.folder.interrupted()
            if (kept := export_best(run)) is None:
                raise error from None
            raise error.keeping(kept) from None


def _require_trained(run: RunContext) -> None:
    """Raise TrainingFailedError if neither steps nor a warm start trained a call."""
    ledger = run.state.ledger
    if not ledger.trained and not run.state.warmed:
        raise TrainingFailedError(
            f"None of {ledger.calls:,} model calls was trained"
            f"{ledger.why_untrained()}. The policy is as it was before, and nothing "
            f"was saved. See `agentgym doctor {run.folder.path}`.",
            resumable=False,
        )
