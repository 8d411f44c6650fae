"""The training loop: one run from its baseline to its trained agent."""

import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Bucket
from agentgym.core.task import Split
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.base import Engine, UpdateMetrics
from agentgym.engines.registry import create_engine
from agentgym.errors import OutputClosed, TrainingFailedError, TrainingInterrupted
from agentgym.evaluate.evaluation import Measurement, criteria_hold, measure
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import Progress, StepReport
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.train.export import export_agent
from agentgym.train.interrupt import InterruptFlag
from agentgym.train.plan import make_plan
from agentgym.train.process import ResourceUse
from agentgym.train.result import RESULT_FILE, Artifacts, TrainingResult
from agentgym.train.run_folder import RunFolder, RunState, metrics_line
from agentgym.train.tasks import TaskStream
from agentgym.train.tracking import open_tracker

logger = logging.getLogger(__name__)


class TrainingLoop:
    """One run. Everything that must survive a kill is in ``self.state``.

    Args:
        config: Every setting, already checked.
        run: Its folder, locked by the caller.
        progress: Told what happens.
    """

    def __init__(
        self, config: TrainingConfig, run: RunFolder, progress: Progress
    ) -> None:
        self._config = config
        self._run = run
        self._progress = progress
        self._scenario = get_scenario(config.scenario)
        self._trainable = self._scenario.define_trainable_components()
        self._saved_step = 0
        self.state = RunState()

    def run(self) -> TrainingResult:
        """Run to the end.

        Raises:
            TrainingInterrupted: Ctrl-C or SIGTERM; everything finished is saved.
            TrainingFailedError: Every rollout of a step was dropped.
        """
        plan = make_plan(self._config)
        checkpoint = self._run.load_state()
        resumed = checkpoint[0].step if checkpoint else None
        self._progress.planned(
            dataclasses.replace(plan, run=self._run.path, resumed_step=resumed)
        )
        engine = create_engine(self._config)
        if checkpoint:
            self._restore(engine, *checkpoint)
        self._run.write_record(
            status="running", config=self._config.model_dump(mode="json")
        )
        try:
            with (
                InterruptFlag() as self._interrupt,
                ResourceUse(self.state) as self._use,
                RolloutSession(
                    self._config,
                    engine.policy,
                    self._run.path,
                    plan.workers,
                    resumed_step=-1 if resumed is None else resumed,
                ) as self._session,
            ):
                result = self._run_with(engine)
        except (TrainingInterrupted, KeyboardInterrupt, OutputClosed):
            self._run.write_record(status="interrupted")
            raise
        except BaseException as error:
            self._run.write_record(status="failed", error=str(error))
            raise
        finally:
            engine.close()
        self._run.write_record(status="done")
        return result

    def _run_with(self, engine: Engine) -> TrainingResult:
        """Measure, train, measure again, and export."""
        if not self.state.baseline:
            self.state.baseline = self._measure_held_out("before", step=0)
            self._checkpoint(engine)
        self._progress.baseline(next(iter(self.state.baseline.values())))
        stopped = self._train(engine)
        self._progress.ended(stopped, self.state.ledger)
        after = self._measure_held_out("after", step=self.state.step + 1)
        return self._finish(engine, stopped, after)

    def _train(self, engine: Engine) -> str:
        """Do steps until the criteria hold or the budget is spent; say which."""
        config, state = self._config, self.state
        stream = TaskStream(
            self._scenario,
            config.seed,
            state.stream,
            adaptive=config.task_choice == "adaptive",
            failure_cost=config.failure_cost,
        )
        started, first = time.monotonic(), state.episodes
        with open_tracker(config, self._run.path) as tracker:
            if state.step and self._validation_due() and state.validation is None:
                self._validate()  # which was interrupted
            while state.episodes < config.episodes:
                if self._criteria_reached():
                    return "success criteria reached"
                began = time.monotonic()
                with self._saving(engine):
                    groups = self._rollouts(state.step + 1, stream)
                sampled = time.monotonic()
                update = engine.update(
                    groups, self._call_rewards(groups), self._trainable
                )
                trajectories = [t for group in groups for t in group]
                for trajectory in trajectories:
                    self._account(trajectory, update)
                state.step = update.step
                state.episodes += len(trajectories)
                stream.learn(groups)
                report = _report(groups, update, state, config, began, sampled)
                pace = (time.monotonic() - started) / (state.episodes - first)
                report = dataclasses.replace(
                    report, seconds_left=pace * (config.episodes - state.episodes)
                )
                measured = None
                try:
                    with self._saving(engine):
                        measured = self._validate() if self._validation_due() else None
                finally:
                    self._run.append_metrics(metrics_line(report, measured))
                tracker.log(report, measured)
                if (
                    state.step % config.checkpoint_every == 0
                    or state.episodes >= config.episodes
                    or self._criteria_reached()
                    or self._interrupt.requested
                ):
                    self._checkpoint(engine)
                self._progress.stepped(report)
                self._session.forget(trajectories)
                self._interrupt.check(str(self._run.path), self._saved_step)
        return (
            "success criteria reached" if self._criteria_reached() else "budget spent"
        )

    def _rollouts(self, step: int, stream: TaskStream) -> list[list[Trajectory]]:
        """Attempt the next tasks ``group_size`` times each."""
        config = self._config
        left = (config.episodes - self.state.episodes) // config.group_size
        tasks = stream.take(max(1, min(config.tasks_per_step, left)))
        requests = [
            RolloutRequest(
                rollout_id=f"s{step:05d}-t{index:03d}-{attempt:02d}",
                task=task,
                train=True,
                group=f"s{step:05d}-t{index:03d}",
                step=step,
            )
            for index, task in enumerate(tasks)
            for attempt in range(config.group_size)
        ]
        self._progress.phase("rollouts", len(requests))
        trajectories = self._session.run(requests, self._on_rollout)
        if all(t.status is RolloutStatus.DROPPED for t in trajectories):
            raise TrainingFailedError(
                f"Every rollout of step {step} was dropped: {trajectories[0].reason}. "
                f"See `agentgym doctor {self._run.path}`."
            )
        size = config.group_size
        return [trajectories[i : i + size] for i in range(0, len(trajectories), size)]

    def _call_rewards(
        self, groups: Sequence[Sequence[Trajectory]]
    ) -> dict[str, list[float]]:
        """Return the reward of each model call of the rollouts that were scored."""
        return {
            trajectory.rollout_id: self._scenario.broadcast_rewards(trajectory)
            for group in groups
            for trajectory in group
            if trajectory.reward is not None
            and trajectory.status is not RolloutStatus.DROPPED
        }

    def _account(self, trajectory: Trajectory, update: UpdateMetrics) -> None:
        """Put each model call of a rollout into its bucket of the ledger."""
        ledger = self.state.ledger
        calls = len(trajectory.model_calls)
        ledger.add(update.ledger[trajectory.rollout_id], calls=calls)
        for reason, count in trajectory.unused_calls.items():
            ledger.add([Bucket("dropped", reason)] * count, calls=count)

    def _validation_due(self) -> bool:
        return self.state.step % self._config.eval_every == 0

    def _validate(self) -> Metrics:
        """Measure validation tasks, which early stopping goes by."""
        size, step = self._config.eval_tasks, self.state.step
        self.state.validation = self.state.confirmation = None
        self.state.validation = measured = self._measure_validation(0, size)
        self._progress.validated(step, measured, self._criteria_reached())
        return measured

    def _criteria_reached(self) -> bool:
        """Say whether the criteria hold on validation tasks, together with others.

        The best of many measurements is better than the policy is. So where one would
        end training, as many other tasks are measured, and all of them count. Where
        there are no others, the same ones are attempted once more.
        """
        state, size = self.state, self._config.eval_tasks
        criteria = self._scenario.success_criteria()
        if state.validation is None or not self._config.early_stop:
            return False
        if not criteria_hold(criteria, state.validation):
            return False
        if state.confirmation is None:
            others = self._measure_validation(size, 2 * size)
            tasks = [*state.validation.by_task, *others.by_task]
            state.confirmation = Metrics.of_tasks(tasks, k=1)
        return criteria_hold(criteria, state.confirmation)

    def _measure_validation(self, first: int, end: int) -> Metrics:
        """Measure the validation tasks from ``first`` to before ``end``, once each."""
        seed, step = self._config.seed, self.state.step
        made = make_tasks(self._scenario, Split.VALIDATION, seed, end)
        tasks = made[first:] or made
        name = f"v{step:05d}" if first == 0 else f"c{step:05d}"
        self._progress.phase("validation", len(tasks))
        return self._measure([Measurement(name, tasks)], samples=1, step=step)[name]

    def _measure(
        self, sets: Sequence[Measurement], *, samples: int, step: int
    ) -> dict[str, Metrics]:
        return measure(self._session, sets, samples, self._on_rollout, step=step)

    def _measure_held_out(self, phase: str, step: int) -> dict[str, Metrics]:
        """Measure the policy on every held-out set of the scenario, main one first.

        Args:
            phase: ``before`` or ``after``.
            step: A resumed run forgets the rollouts of later steps than its own.
        """
        config = self._config
        held_out = held_out_sets(self._scenario, config.seed, config.test_tasks)
        rollouts = config.eval_samples * sum(map(len, held_out.values()))
        self._progress.phase(phase, rollouts)
        sets = [Measurement(f"{phase} {name}", t) for name, t in held_out.items()]
        done = self._measure(sets, samples=config.eval_samples, step=step)
        return {name: done[f"{phase} {name}"] for name in held_out}

    def _on_rollout(self, trajectory: Trajectory) -> None:
        self._progress.rollout_done()
        self._interrupt.check(str(self._run.path), self._saved_step)

    def _checkpoint(self, engine: Engine) -> None:
        """Make the step durable: events first, then the checkpoint that counts it."""
        self._session.flush()
        self._use.update()
        keep = self._config.keep_checkpoints
        with self._run.new_checkpoint(self.state, keep) as folder:
            engine.save_checkpoint(folder)
        self._saved_step = self.state.step

    @contextmanager
    def _saving(self, engine: Engine) -> Iterator[None]:
        """Make the steps done so far durable if the user ends the run in here."""
        stream = self.state.stream.model_copy(deep=True)
        try:
            yield
        except TrainingInterrupted:
            self.state.stream = stream  # its tasks are to be taken again
            if self.state.step > self._saved_step:
                self._checkpoint(engine)
            raise TrainingInterrupted(str(self._run.path), self._saved_step) from None

    def _restore(self, engine: Engine, state: RunState, folder: Path) -> None:
        """Continue from the checkpoint in ``folder``."""
        self.state = state
        self._saved_step = state.step
        engine.load_checkpoint(folder)
        self._run.truncate_metrics(state.step)

    def _finish(
        self, engine: Engine, stopped: str, after: dict[str, Metrics]
    ) -> TrainingResult:
        state, before = self.state, self.state.baseline
        main, *others = before
        agent, saved_as = export_agent(
            engine,
            self._scenario,
            self._config,
            folder=self._run.path / "agent",
            state=state,
            metrics=after[main],
            baseline=before[main],
        )
        self._use.update()
        result = TrainingResult(
            scenario=self._scenario.name,
            config=self._config.model_dump(mode="json"),
            baseline=before[main],
            metrics=after[main],
            breakdown={name: (before[name], after[name]) for name in others},
            stopped=stopped,
            steps=state.step,
            episodes=state.episodes,
            wall_seconds=state.wall_seconds,
            cpu_seconds=state.cpu_seconds,
            peak_memory_mb=self._use.peak_memory_mb,
            ledger=state.ledger,
            artifacts=Artifacts(run=self._run.path, agent=agent, saved_as=saved_as),
        )
        _write_result(self._run.path, result)
        return result


def _write_result(folder: Path, result: TrainingResult) -> None:
    from agentgym.core.files import write_json

    write_json(folder / RESULT_FILE, result.model_dump(mode="json"))


def _report(
    groups: Sequence[Sequence[Trajectory]],
    update: UpdateMetrics,
    state: RunState,
    config: TrainingConfig,
    began: float,
    sampled: float,
) -> StepReport:
    """Put one step into numbers."""
    trajectories = [t for group in groups for t in group]
    scored = [t for t in trajectories if t.reward is not None]
    calls = [call for t in scored for call in t.get_tool_calls()]
    tokens = sum(len(c.response_ids) for t in trajectories for c in t.model_calls)
    ended = time.monotonic()
    return StepReport(
        step=update.step,
        episodes=state.episodes,
        budget=config.episodes,
        reward=sum(t.reward or 0.0 for t in scored) / len(scored),
        success_rate=sum(bool(t.success) for t in scored) / len(scored),
        tool_reliability=sum(c.outcome == "ok" for c in calls) / max(1, len(calls)),
        loss=update.loss,
        entropy=update.entropy,
        kl=update.kl,
        grad_norm=update.grad_norm,
        clip_fraction=update.clip_fraction,
        trained_tokens=update.trained_tokens,
        skipped_groups=update.skipped_groups,
        groups=len(groups),
        dropped=len(trajectories) - len(scored),
        sampled_tokens=tokens,
        rollout_seconds=sampled - began,
        update_seconds=ended - sampled,
        tokens_per_second=tokens / (ended - began),
        seconds_left=0.0,
    )
