"""RunContext: the parts of a run that all steps share, from engine to checkpoints."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.files import disk_trouble, patiently
from agentgym.engines.base import Engine
from agentgym.engines.registry import announced_start
from agentgym.errors import StoreError, TrainingHalted
from agentgym.evaluate import events
from agentgym.evaluate.events import Observer, Plan, StepReport
from agentgym.evaluate.metrics import Metrics
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import scenario_of
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.audit import AuditLog, audited
from agentgym.train.interrupts import InterruptFlag
from agentgym.train.resource_use import Began, ResourceUse
from agentgym.train.run_folder import RunFolder, metrics_line
from agentgym.train.run_state import RunState
from agentgym.train.sampling import Sampling, open_sampling


class RunContext:
    """Opens and closes the parts of a run, and saves its progress to disk.

    Attributes:
        config: The settings. Those that a time limit allows to be smaller are replaced
            during the run.
        engine: Samples and learns; exists within :meth:`engine_started`, as ``use``.
        session: Runs rollouts; exists within :meth:`workers_started`.
        sampling: The kind of training rollouts, e.g. whole episodes.
    """

    engine: Engine
    session: RolloutSession
    use: ResourceUse

    def __init__(
        self, plan: Plan, folder: RunFolder, progress: Observer, began: Began
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.progress = progress
        self.config = plan.config
        self.scenario = scenario_of(
            plan.config.scenario, plan.config.plugin_groups, trains=True
        )
        self.state = RunState()
        self.sampling = Sampling(None)  # until there are workers
        self.interrupt = InterruptFlag()
        self._began = began
        self._resumed: int | None = None
        self._stalled: str | None = None

    @contextmanager
    def engine_started(
        self, create: Callable[[TrainingConfig], Engine]
    ) -> Iterator[None]:
        """Start the engine, from the newest checkpoint if there is one; then close it.

        Ctrl-C and disk failures in the block become errors that say how to resume.
        """
        with self._ended_readably(), ExitStack() as stack:
            self.state, checkpoint = self.folder.load_state() or (RunState(), None)
            self._resumed = self.state.step if checkpoint else None
            self.progress(
                replace(self.plan, run=self.folder.path, resumed_step=self._resumed)
            )
            place = {"name": self.folder.path.name, "output": self.folder.path.parent}
            config = self.config.model_copy(update=place)
            if text := announced_start(config):
                self.progress(events.Message(text))
            self.engine = create(config)
            stack.callback(self.engine.close)
            if checkpoint:
                self.engine.load_checkpoint(checkpoint)
                self.folder.truncate_metrics(self.state.step)
            stack.enter_context(self.folder.recorded(self.config, self.plan.form))
            log = AuditLog(self.folder.path / AUDIT_FILE, private=self.config.private)
            stack.enter_context(audited(log))
            stack.enter_context(self.interrupt)
            self.use = stack.enter_context(ResourceUse(self.state, self._began))
            yield

    @contextmanager
    def workers_started(self) -> Iterator[None]:
        """Start store, gateway and workers for the block."""
        self.sampling = open_sampling(self)
        session = RolloutSession(
            self.config,
            self.sampling.policy,
            self.folder.path,
            self.plan.workers,
            resumed_step=-1 if self._resumed is None else self._resumed,
            beat=self._beat,
        )
        with session as self.session:
            yield

    @contextmanager
    def _ended_readably(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            why = str(error) if isinstance(error, StoreError) else disk_trouble(error)
            if self.interrupt.requested and (
                why is not None or isinstance(error, KeyboardInterrupt)
            ):
                raise self.folder.interrupted() from error
            if why is None:
                raise
            raise TrainingHalted(str(self.folder.path), why) from error

    def check_interrupt(self) -> None:
        """Raise TrainingInterrupted after a Ctrl-C or SIGTERM."""
        if self.interrupt.requested:
            raise self.folder.interrupted()

    def change_settings(self, config: TrainingConfig) -> None:
        """Use and record other settings from now on."""
        self.config = config
        self.folder.write_record(config=config.model_dump(mode="json"))

    def append_credit(self, lines: Iterable[dict[str, Any]]) -> None:
        """Record how each model call of a step was trained."""
        write = partial(self.folder.append_credit, list(lines))
        patiently(write, self._report_stalled)

    def save(
        self, report: StepReport | None = None, measured: Metrics | None = None
    ) -> None:
        """Save to disk: first the step's metrics and rollouts, then a checkpoint."""
        if report is not None:
            line = metrics_line(report, measured, self.state.forgetting)
            write = partial(self.folder.append_metrics, line)
            patiently(write, self._report_stalled)
        self.session.flush()
        self.use.update()
        patiently(self._checkpoint, self._report_stalled)
        if report is not None:
            self.progress(report)

    def _checkpoint(self) -> None:
        with self.folder.new_checkpoint(self.state) as folder:
            self.engine.save_checkpoint(folder)

    def _beat(self, stalled: str | None) -> None:
        self._report_stalled(stalled)
        self.check_interrupt()

    def _report_stalled(self, stalled: str | None) -> None:
        """Report why the disk cannot be written, once; None if it can be again."""
        if stalled != self._stalled:
            self._stalled = stalled
            self.progress(events.Stalled(stalled))
