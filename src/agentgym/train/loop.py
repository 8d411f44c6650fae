"""TrainingLoop: execute a run, from the first measurement to the trained agent."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

from agentgym.core.components import tokens_name
from agentgym.core.config import TrainingConfig
from agentgym.core.files import disk_trouble, patiently
from agentgym.core.task import Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.base import UpdateMetrics
from agentgym.engines.registry import announced_start, create_engine
from agentgym.errors import (
    StoreError,
    TrainingFailedError,
    TrainingHalted,
    TrainingInterrupted,
    UsageError,
)
from agentgym.evaluate.advice import doubts, next_steps, warm_start_offer
from agentgym.evaluate.forecast import Forecast
from agentgym.evaluate.judge.group_judge import Ranker
from agentgym.evaluate.judge.settings import open_judge
from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.evaluate.numbers import percent
from agentgym.evaluate.progress import Plan, Progress, StepReport
from agentgym.evaluate.roles import check_roles
from agentgym.models.folder import is_small
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_count
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.audit import AuditLog, audited
from agentgym.train.batch import BatchBuilder, Credited
from agentgym.train.export import Saved, export_agent
from agentgym.train.process import Began, InterruptFlag, ResourceUse
from agentgym.train.result import Artifacts, TrainingResult, require_trained
from agentgym.train.run_folder import RunFolder, RunState, metrics_line
from agentgym.train.step_report import credit_lines, report_step
from agentgym.train.stopping import End
from agentgym.train.tasks import TaskStream
from agentgym.train.time_limit import TimeBudget
from agentgym.train.tracking import open_tracker
from agentgym.train.validation import Evaluator
from agentgym.train.warm_start.fine_tuning import FineTuning
from agentgym.train.warm_start.plans import can_imitate

SPENT = "budget spent"
TIME_SPENT = "time spent"
ENDS: dict[End, str] = {
    "goal": "the goal is reached",
    "out_of_reach": "the goal is out of reach within the budget",
    "settled": "validation has stopped rising",
    "no_signal": "nothing is left to learn from the training tasks",
}
"""Why a run ended before its budget did, in words."""


class TrainingLoop:
    """Executes one training run.

    Checkpoints save ``state``, so that the run can be resumed. The caller has checked
    the plan and locked the run's folder. The run's time limit and its CPU seconds count
    from ``began``.
    """

    def __init__(
        self, plan: Plan, run: RunFolder, progress: Progress, began: Began
    ) -> None:
        self._began = began
        self._plan = plan
        self._run = run
        self._progress = progress
        self._scenario = get_scenario(plan.config.scenario)
        self._size(plan.config)
        self.state = RunState()
        self._stalled: str | None = None
        self._is_late = False
        self._interrupt = InterruptFlag()

    def _size(self, config: TrainingConfig, each: float | None = None) -> None:
        """Use the settings ``config`` from now on, also to estimate remaining times.

        ``each`` is the measured time of a rollout in seconds; None if not measured.
        """
        held_out = cache(partial(held_out_count, self._scenario, config.seed))
        rollouts = config.eval_samples * held_out(config.test_tasks)
        self._config = config
        self._time = TimeBudget(config, held_out, self._plan.workers)
        self._forecast = Forecast(config, rollouts, each)

    def run(self) -> TrainingResult:
        """Start or resume the run, and return its result."""
        with self._ended_readably():
            return self._run_whole()

    def _run_whole(self) -> TrainingResult:
        plan = self._plan
        self.state, checkpoint = self._run.load_state() or (RunState(), None)
        resumed = self.state.step if checkpoint else None
        self._progress.planned(
            dataclasses.replace(plan, run=self._run.path, resumed_step=resumed)
        )
        place = {"name": self._run.path.name, "output": self._run.path.parent}
        placed = self._config.model_copy(update=place)
        if text := announced_start(placed):
            self._progress.starting(text)
        self._engine = create_engine(placed)
        with ExitStack() as stack:
            stack.callback(self._engine.close)
            if checkpoint:
                self._engine.load_checkpoint(checkpoint)
                self._run.truncate_metrics(self.state.step)
            stack.enter_context(self._run.recorded(self._config, plan.form))
            stack.enter_context(audited(self._audit_log()))
            stack.enter_context(self._interrupt)
            self._use = stack.enter_context(ResourceUse(self.state, self._began))
            session = RolloutSession(
                self._config,
                self._engine.policy,
                self._run.path,
                plan.workers,
                resumed_step=-1 if resumed is None else resumed,
                beat=self._beat,
            )
            try:
                with session as self._session:
                    return self._run_within()
            except (TrainingInterrupted, KeyboardInterrupt):
                if not self._interrupt.requested:
                    raise
                self._interrupt.wait(0)  # this signal has been handled
                raise self._with_best_weights(self._run.interrupted()) from None

    def _audit_log(self) -> AuditLog:
        return AuditLog(self._run.path / AUDIT_FILE, private=self._config.private)

    def _run_within(self) -> TrainingResult:
        """Measure, train, measure again, and export the trained agent."""
        state = self.state
        self._measuring = Evaluator(
            self._config,
            self._scenario,
            state,
            self._engine,
            self._session,
            self._progress,
            self._on_rollout,
        )
        if not state.baseline:
            self._fit_to_time()
            self._measuring.ask_questions()
            with self._forecast.measuring(is_baseline=True):
                state.baseline = self._measuring.held_out("before", step=0)
            check_roles(self._config.train_roles, state.baseline.values())
            self._save()
        self._progress.baseline(next(iter(state.baseline.values())))
        offer = self._offer_warm_start()
        if self._config.warm_start:
            self._warm_start()
        self._fit_rest()
        if not state.stopping.samples:
            goal = self._measuring.goal
            state.stopping.add_validation(0, state.start, goal)
        if self._measuring.is_due and self._has_room:
            self._measuring.validate(self._steps_left)
            self._save()
        self._report_time_left()
        if not state.step:
            self._ask(offer)
        stopped = self._train()
        self._progress.ended(stopped, state.ledger)
        require_trained(state.ledger, self._run.path, warmed=bool(state.warmed))
        weights = self._measuring.load_best_weights(self._run)
        return self._finish(stopped, weights, self._measuring.at_end(weights))

    def _fit_to_time(self) -> None:
        """If the run has a time limit, time rollouts and choose numbers of tasks."""
        state, config = self.state, self._config
        if config.time is None or state.rollout_seconds is not None:
            return
        each = self._measuring.time_rollouts(self._time.timed, self._time.timing_s)
        self._use.update()
        self._fit(self._time.fit(config.time - state.wall_seconds, each), each)

    def _fit_rest(self) -> None:
        """Before the first step, fit steps and validations to the remaining time."""
        state, limit, each = self.state, self._config.time, self._measured
        if limit and each and not state.step and state.validation is None:
            self._use.update()
            self._fit(self._time.fit_rest(limit - state.wall_seconds, each), each)

    def _fit(self, sizes: dict[str, Any], each: float) -> None:
        """Use the settings ``sizes``, which were chosen for rollouts of ``each`` s."""
        self.state.rollout_seconds = each
        self._size(self._config.replaced(**sizes), each)
        self._measuring = dataclasses.replace(self._measuring, config=self._config)
        self._run.write_record(config=self._config.model_dump(mode="json"))
        self._progress.fitted(self._time.words(each, self._config))

    def _offer_warm_start(self) -> str:
        """Ask the user whether to begin with a warm start, if this would help.

        Returns the text of the offer if the user was not asked or did not answer; else
        an empty text.
        """
        state, config = self.state, self._config
        if config.warm_start or state.step or not can_imitate(config, self._scenario):
            return ""
        offer = warm_start_offer(state.start)
        if not offer or config.yes:
            return offer
        answer = self._progress.wants_warm_start(offer)
        if answer:
            self._config = config.replaced(warm_start=True)
            self._run.write_record(config=self._config.model_dump(mode="json"))
        return offer if answer is None else ""

    def _warm_start(self) -> None:
        """Fine-tune on the calls that tasks need, then measure; skip finished parts."""
        state = self.state
        if state.warm_start is None:
            if state.step:
                raise UsageError(
                    f"A warm start comes before the first step, and {self._run.path} "
                    f"has done {state.step}. Leave --warm-start out, or start a new "
                    "run."
                )
            lesson = FineTuning(
                self._config,
                self._scenario,
                self._engine,
                self._progress,
                self._check_interrupt,
                self._time.lesson_clock(state, self._measured),
            )
            self._report_time_left(lesson.size)
            state.warm_start = lesson.run()
            self._save()
        if not state.warmed:
            with self._forecast.measuring():
                state.warmed = self._measuring.held_out("warmed", step=0)
            self._save()
        self._progress.warmed(state.warm_start.words(), state.start)

    @property
    def _has_room(self) -> bool:
        """Whether another step fits into the time limit; True without a limit."""
        return self._time.has_room(self.state, self._forecast.step, self._measured)

    def _report_time_left(self, lesson: int = 0) -> None:
        """Report the time left; a warm start will yet imitate ``lesson`` rollouts."""
        state = self.state
        spent = state.episodes, state.step, lesson, state.wall_seconds
        if left := self._forecast.until_end(*spent):
            self._progress.forecast(*left)

    def _ask(self, offer: str) -> None:
        """Ask the user whether to train if the first measurement gives little hope.

        The user is not asked if the setting ``yes`` is set, or if a warm start had any
        success. ``offer`` is the unanswered text of :meth:`_offer_warm_start`, or
        empty. Raise TrainingFailedError if the user does not agree.
        """
        found = doubts(self.state.start, judged=self._config.judge.model is not None)
        remarks = [*found, offer] if offer else found
        has_result = bool(self.state.warmed) and self.state.start.pass_1.value > 0
        if remarks and (self._config.yes or has_result or not found):
            self._progress.warned(remarks)
        elif found and not self._progress.allows(remarks):
            either = " or with --warm-start" if offer else ""
            raise TrainingFailedError(
                f"{' '.join(remarks)} Training was not started; to train all the same, "
                f"`agentgym train --resume {self._run.path} --yes`{either}.",
                resumable=False,
            )

    def _train(self) -> str:
        """Do training steps until the run should stop; return why it stops."""
        config, state, engine = self._config, self.state, self._engine
        tasks = TaskStream(self._scenario, config, state.stream)
        builder = BatchBuilder.of(config, self._scenario, engine.label, engine.allowed)
        state.ledger.tokens = tokens_name(builder.trainable)
        judge = open_judge(
            *(config.judge, state.ledger, self._progress), beat=self._check_interrupt
        )
        with open_tracker(config, self._run.path) as track:
            for step in self._steps():
                begun = time.monotonic()
                groups, verdicts = self._sample(tasks, builder, judge, step)
                sampled = time.monotonic()
                credited = builder.build(groups, self._scenario.broadcast_rewards)
                credited.batch.spent = self._time.spent(state, self._measured)
                update = self._engine.update(credited.batch)
                self._account(credited, update)
                said = {} if config.private else verdicts
                lines = list(credit_lines(credited, said, update))
                patiently(partial(self._run.append_credit, lines), self._say_stalled)
                new = [TaskResult.of(g, None) for g in groups if tasks.is_new(g)]
                signals = len(groups) - credited.skipped_groups, len(groups)
                state.stopping.add_step(step - 1, new, self._measuring.goal, signals)
                report = self._report(credited, update, begun, sampled)
                measured = self._validate(report, tasks)
                track(report, measured)
                self._save(report, measured)
        if state.end is not None:
            return ENDS[state.end]
        return TIME_SPENT if self._is_late else SPENT

    def _steps(self) -> Iterator[int]:
        """Yield the numbers of the remaining steps."""
        state = self.state
        if state.training_began is None:
            state.training_began = state.wall_seconds
        while self._steps_left and state.end is None:
            if not self._has_room:
                self._time.check_trained(state, self._measured, self._run.path)
                self._is_late = True
                break
            yield state.step + 1
            self._check_interrupt()

    @property
    def _steps_left(self) -> int:
        """Number of steps that the budget still allows, of whole groups of rollouts."""
        config = self._config
        groups = max(0, config.episodes - self.state.episodes) // config.group_size
        return math.ceil(groups / config.tasks_per_step)

    @property
    def _measured(self) -> float:
        """Wall seconds per rollout in the newest measurement; 0 if not timed."""
        return self._forecast.measured or self.state.rollout_seconds or 0.0

    def _sample(
        self, tasks: TaskStream, builder: BatchBuilder, judge: Ranker, step: int
    ) -> tuple[Sequence[Sequence[Trajectory]], dict[str, Any]]:
        """Run a step's rollouts; return their groups, and the judge's verdicts.

        A group has the attempts at one task. The verdicts of the judge model are by
        rollout id.
        """
        verdicts: dict[str, Any] = {}

        def attempt(chosen: Sequence[Task], first: int) -> list[list[Trajectory]]:
            ranked = judge.ranked(self._attempt(chosen, step, first))
            verdicts.update(judge.verdicts)
            return ranked

        left = (self._config.episodes - self.state.episodes) // self._config.group_size
        broadcast = self._scenario.broadcast_rewards
        groups = tasks.groups(left, attempt, lambda g: builder.has_signal(g, broadcast))
        return groups, verdicts

    def _attempt(
        self, tasks: Sequence[Task], step: int, first: int
    ) -> list[list[Trajectory]]:
        """Attempt each task ``group_size`` times; return one group per task.

        The groups of a step are numbered; ``first`` is the number of the first group.
        """
        size = self._config.group_size
        requests = RolloutRequest.of_groups(tasks, size, step, first)
        self._progress.phase("rollouts", len(requests))
        with self._engine.sampling():
            found = self._session.run(requests, self._on_rollout)
        if not first and all(t.status is RolloutStatus.DROPPED for t in found):
            raise TrainingFailedError(
                f"Every rollout of step {step} was dropped: {found[0].reason}. "
                f"See `agentgym doctor {self._run.path}`."
            )
        return [found[i : i + size] for i in range(0, len(found), size)]

    def _account(self, credited: Credited, update: UpdateMetrics) -> None:
        """Count the step and its rollouts, and record how each model call was used."""
        state = self.state
        credited.conclude(update)
        for trajectory in credited.rollouts:
            buckets = credited.ledger[trajectory.rollout_id]
            state.ledger.add_rollout(trajectory, buckets)
            state.episodes += 1
        state.step = update.step
        if state.step % self._config.eval_every == 0:
            state.validation = None

    def _report(
        self, credited: Credited, update: UpdateMetrics, begun: float, sampled: float
    ) -> StepReport:
        """Return a step's report; its rollouts ran from ``begun`` to ``sampled``."""
        now, done = time.monotonic(), self.state.episodes
        self._forecast.step_done(len(credited.rollouts), now - begun)
        spent = done, update.step, 0, self.state.wall_seconds
        left = (self._forecast.until_end(*spent) or (0.0, 0.0))[1]
        times = (sampled - begun, now - sampled)
        return report_step(credited, update, times, done, self._config.episodes, left)

    def _validate(self, report: StepReport, tasks: TaskStream) -> Metrics | None:
        """Run a validation and return its metrics; return None if none is due.

        If the validation is interrupted, the finished step is saved.
        """
        if not self._measuring.is_due:
            return None
        try:
            with self._forecast.measuring():
                return self._measuring.validate(self._steps_left, tasks.trained)
        except TrainingInterrupted:
            self._save(report)
            self._check_interrupt()
            raise

    def _save(
        self, report: StepReport | None = None, measured: Metrics | None = None
    ) -> None:
        """Save to disk: first the step's metrics and rollouts, then a checkpoint."""
        if report is not None:
            line = metrics_line(report, measured, self.state.forgetting)
            patiently(lambda: self._run.append_metrics(line), self._say_stalled)
        self._session.flush()
        self._use.update()
        patiently(self._checkpoint, self._say_stalled)
        if report is not None:
            self._progress.stepped(report)

    def _checkpoint(self) -> None:
        with self._run.new_checkpoint(self.state) as folder:
            self._engine.save_checkpoint(folder)

    def _beat(self, stalled: str | None) -> None:
        self._say_stalled(stalled)
        self._check_interrupt()

    def _say_stalled(self, stalled: str | None) -> None:
        """Report the reason ``stalled`` why writing to the disk is delayed.

        None reports that writing works again.
        """
        if stalled != self._stalled:
            self._stalled = stalled
            self._progress.stalled(stalled)

    @contextmanager
    def _ended_readably(self) -> Iterator[None]:
        """Convert Ctrl-C and disk failures to errors that explain how to resume."""
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            why = str(error) if isinstance(error, StoreError) else disk_trouble(error)
            if self._interrupt.requested and (
                why is not None or isinstance(error, KeyboardInterrupt)
            ):
                raise self._run.interrupted() from error
            if why is None:
                raise
            raise TrainingHalted(str(self._run.path), why) from error

    def _on_rollout(self, trajectory: Trajectory) -> None:
        self._forecast.rollout_done(trajectory.duration_s)
        if text := self._forecast.long_baseline():
            self._progress.warned([text])
        self._progress.rollout_done()
        self._check_interrupt()

    def _check_interrupt(self) -> None:
        if self._interrupt.requested:
            raise self._run.interrupted()

    def _next_steps(self, before: Metrics, after: Metrics) -> list[str]:
        """Return what to try next if training did not help."""
        config, watch = self._config, self.state.watch
        may_imitate = not config.warm_start and can_imitate(config, self._scenario)
        return next_steps(
            before,
            after,
            remarks=[remark.text for remark in watch.remarks],
            may_imitate=may_imitate,
            is_small=is_small(config.model),
        )

    def _with_best_weights(self, error: TrainingInterrupted) -> TrainingInterrupted:
        """Save the best validated weights of an interrupted run as a version.

        Return the error with the version's name. The version does not become the
        default, since it was not measured on held-out tasks.
        """
        state = self.state
        best, found = self._run.best_checkpoint(state), state.best_validation
        if best is None or found is None:
            return error
        self._engine.load_checkpoint(best)
        step = state.watch.best_step
        saved = self._export(step, found, is_measured=False)
        share = percent(found.pass_1.value)
        return error.keeping(
            f"The best weights so far, of step {step} (validation {share}), are "
            f"{saved.name}. {saved.name} is not the default: it was not measured on "
            "held-out tasks."
        )

    def _export(self, step: int, found: Metrics, *, is_measured: bool = True) -> Saved:
        """Save the engine's weights, which had ``step`` updates, as a version."""
        return export_agent(
            self._engine,
            self._scenario,
            self._config,
            folder=self._run.path / "agent",
            step=step,
            state=self.state,
            metrics=found,
            baseline=next(iter(self.state.baseline.values())),
            is_measured=is_measured,
        )

    def _finish(
        self, stopped: str, weights: int, after: dict[str, Metrics]
    ) -> TrainingResult:
        state, before = self.state, self.state.baseline
        main, *others = before
        saved = self._export(weights, after[main])
        self._use.update()
        warmed = state.warmed
        result = TrainingResult(
            scenario=self._scenario.name,
            config=self._config.model_dump(mode="json"),
            baseline=before[main],
            metrics=after[main],
            breakdown={name: (before[name], after[name]) for name in others},
            warm_start=warmed.get(main),
            warm_breakdown={name: warmed[name] for name in others if warmed},
            imitated=state.warm_start,
            criteria=self._config.goal or self._scenario.success_criteria(),
            validations=state.watch.history,
            next_steps=self._next_steps(before[main], after[main]),
            stopped=stopped,
            steps=state.step,
            weights_step=weights,
            episodes=state.episodes,
            device=self._plan.device,
            wall_seconds=state.wall_seconds,
            cpu_seconds=state.cpu_seconds,
            peak_memory_mb=self._use.peak_memory_mb,
            ledger=state.ledger,
            forgetting=state.forgetting and state.forgetting.without_answers(),
            saved=saved,
            artifacts=Artifacts(run=self._run.path, agent=self._run.path / "agent"),
        )
        result.write()
        return result
