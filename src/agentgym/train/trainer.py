"""Trainer: train, evaluate and deploy agents. The training loop is in ``loop.py``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.core.config import TrainingConfig
from agentgym.core.machines import is_elsewhere
from agentgym.core.notebook import in_notebook
from agentgym.core.prices import Prices
from agentgym.core.task import EVERY_SPLIT, Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.resuming import resumed_config
from agentgym.errors import (
    AgentGymError,
    LimitReached,
    TrainingFailedError,
    TrainingInterrupted,
    UsageError,
    message_of,
    resume_hint,
)
from agentgym.evaluate import events
from agentgym.evaluate.plain_progress import LinesProgress, NotebookProgress
from agentgym.evaluate.result import Evaluation
from agentgym.integrations.agent_import import is_reference, reference_of
from agentgym.plugins import registered
from agentgym.programs.program import ProgramCommand
from agentgym.rollout.absolute_paths import located
from agentgym.security.redaction import get_logger
from agentgym.train.places import Elsewhere, choose_machine, place_of
from agentgym.train.resource_use import Began
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent

if TYPE_CHECKING:
    from agentgym.scenarios.tool_tasks.scenario import ToolScenario
    from agentgym.serving.server import AgentServer

logger = get_logger(__name__)
_OF_EPISODES = [
    f"agent.{name}" for name in ("context", "inputs", "on_interrupt", "configurable")
]


class Trainer:
    """Trains, evaluates and deploys agents.

    ::

        result = Trainer().train("coding", framework="langchain", episodes=2_000)
        print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)

    Args:
        config: Every setting; None takes defaults and ``AGENTGYM_*`` variables.
        progress: A function that is called with each
            :class:`~agentgym.evaluate.events.Event` of a run; True prints lines to
            standard error, and progress bars in a notebook; False is silent.
        began: When this process began, as a value of ``time.monotonic()``: a run's
            time limit and its CPU seconds count from then on. If None, they count from
            the call of ``train``.
    """

    def __init__(
        self,
        config: TrainingConfig | None = None,
        *,
        progress: events.Observer | bool = True,
        began: float | None = None,
    ) -> None:
        self.config = config or TrainingConfig.create()
        self._progress = _observer(progress)
        self._began = began

    def plan(self) -> events.Plan:
        """Check all settings without loading a model, and return the run's plan.

        Raises:
            UsageError: A setting is unusable; the message says which, and the fix.
            RunFolderError: The run folder already exists or cannot be written.
        """
        return self._planned(self.config)

    def _planned(self, config: TrainingConfig) -> events.Plan:
        from agentgym.train.plan import make_plan, require_sound, tried

        config = located(config)
        RunFolder.check_new(config)  # before the trial, which takes a minute
        plan = make_plan(config)
        require_sound(plan.config)
        return tried(plan, self._progress)

    def plan_elsewhere(self) -> Elsewhere:
        """Return the plan of a run on another machine, without contacting the machine.

        Raises:
            UsageError: A setting is unusable.
            RunFolderError: The run folder already exists or cannot be written.
        """
        from agentgym.train.plan import require_sound

        config = located(self.config)
        plan = place_of(config.gpu).plan(config)
        require_sound(config)
        RunFolder.check_new(config)
        return plan

    def train(
        self,
        scenario: "str | ToolScenario | None" = None,
        framework: str | None = None,
        *,
        agent: Any = None,
        command: str | None = None,
        tasks: str | Path | None = None,
        check: Callable[..., Any] | str | None = None,
        check_command: str | None = None,
        episodes: int | None = None,
        gpu: str | None = None,
        resume: str | Path | None = None,
        yes: bool | None = None,
        warm_start: bool | None = None,
        progress: events.Observer | bool | None = None,
        **settings: Any,
    ) -> TrainingResult:
        """Train until the success criteria hold or the budget is spent.

        Args:
            scenario: The scenario's name, or the result of ``Scenario.from_tools``.
                Like all arguments, it overrides the trainer's config.
            framework: The agent's framework; detected from ``agent`` if that is given.
            agent: Your own agent, as ``--agent`` takes it (docs/your_agent.md): a
                compiled graph, an agent, team or workflow of another framework, a
                function that returns one, or ``module:name`` of it; or settings of the
                group ``agent``, ``{"reference": agent, "context": "app:context"}``.
                Worker processes import it, so it must be at the top level of a module.
                It is not changed; the result's ``agent`` is the same kind of agent,
                with the trained model.
            command: Instead of ``agent``: a program in any language that attempts one
                task, ``"node agent.js"``; see docs/any_program.md.
            tasks: Instead of a scenario: a tasks file for the agent's own tools.
            check: A function that scores attempts at ``tasks``, instead of the expected
                calls; see ``Scenario.from_tools``. ``"posted"`` takes the reward that a
                program posts.
            check_command: Instead of ``check``: a command that scores attempts, run in
                the program's folder.
            episodes: Budget of training rollouts.
            gpu: ``auto``, ``local``, ``none``, or a machine: ``ssh:user@host``.
            resume: Name or folder of a run to continue, with that run's settings.
                ``episodes`` may raise the budget, ``gpu`` may name another place, and
                settings of costs, memory and servers may change
                (``rent={"max_cost": 9}``, ``vllm={"max_model_len": 4096}``, …).
            yes: Train without a question even if the first measurement gives little
                hope.
            warm_start: First imitate the calls that training tasks need. A resumed run
                can do so only before its first step.
            progress: False to train silently, or another observer than the trainer's.
            **settings: Further fields of :class:`TrainingConfig`.

        Raises:
            UsageError: A setting is unusable, or may not change on resuming.
            RunFolderError: The run folder is in use, full or not writable.
            TrainingInterrupted: Ctrl-C or SIGTERM; finished steps are saved.
            TrainingFailedError: The first measurement shows that training is hopeless,
                or training gave no usable policy.
        """
        from agentgym.train.input_digests import require_same_tasks
        from agentgym.train.plan import make_plan, tried

        trainer = self
        if progress is not None:
            trainer = Trainer(self.config, progress=progress, began=self._began)
        began = Began.now() if self._began is None else Began(self._began)
        subject = named_subject(scenario, agent, command, tasks, check, check_command)
        if resume is None:
            named = {**subject, "framework": framework, "gpu": gpu}
            named |= {"episodes": episodes, "yes": yes, "warm_start": warm_start}
            config = choose_machine(self.config.replaced(**named, **settings))
            if is_elsewhere(config.gpu):
                return trainer._train_elsewhere(located(config))
            plan = trainer._planned(config)
            run = RunFolder.create(plan.config)
            with run.lock():
                return trainer._run(plan, run, began)
        run = RunFolder.open(resume, self.config.output)
        before = run.config()
        given = {"episodes": episodes, "yes": yes, "warm_start": warm_start, "gpu": gpu}
        config = resumed_config(before, given | settings)
        inputs = run.record().get("inputs") or {}
        if changes := require_same_tasks(inputs, config, run.path):
            for change in changes:
                trainer._progress(events.Warned(change))
        with run.lock():
            moves = is_elsewhere(before.gpu) and config.gpu != before.gpu
            if moves and (why := place_of(before.gpu).fetch_results(before, run)):
                trainer._progress(
                    events.Warned(f"{why} The run goes on from {run.path}.")
                )
            if is_elsewhere(config.gpu):
                return trainer._run_elsewhere(config, run)
            plan = make_plan(config)
            plan = tried(plan, trainer._progress) if changes else plan
            return trainer._run(plan, run, began, is_new=False)

    def _train_elsewhere(self, config: TrainingConfig) -> TrainingResult:
        """Create the folder of a new run, and train the run on another machine."""
        from agentgym.train.plan import require_sound

        place_of(config.gpu).plan(config)
        require_sound(config)
        run = RunFolder.create(config)
        with run.lock():
            return self._run_elsewhere(config, run, is_new=True)

    def _run(
        self, plan: events.Plan, run: RunFolder, began: Began, *, is_new: bool = True
    ) -> TrainingResult:
        """Train to the end in this process; the time limit counts from ``began``.

        ``is_new`` is False for a resumed run.
        """
        from agentgym.train.loop import TrainingLoop

        config, name = plan.config, plan.config.scenario_name
        about = name, config.episodes, config.framework, run.path
        with _ended_helpfully(run, is_new=is_new):
            logger.info("Training %s starts: at most %d rollouts, %s, run %s", *about)
            result = TrainingLoop(plan, run, self._progress, began).run()
            logger.info("Training %s ends: %s, run %s", name, result.stopped, run.path)
            return self._with_reports(result)

    def _run_elsewhere(
        self, config: TrainingConfig, run: RunFolder, *, is_new: bool = False
    ) -> TrainingResult:
        """Train to the end on another machine.

        ``is_new`` is False for a resumed run.
        """
        from agentgym.rollout.session import DATABASE_FILE

        with _ended_helpfully(run, is_new=is_new):
            try:
                result = place_of(config.gpu).train(config, run, self._progress)
                return self._with_reports(result)
            except Exception:
                if is_new and not (run.path / DATABASE_FILE).exists():
                    run.discard_unless_begun()  # as for a run that this machine refuses
                raise

    def _with_reports(self, result: TrainingResult) -> TrainingResult:
        """Write a finished run's reports into its folder, and return its result.

        A failure to write a report is only a warning: the result is on disk already.
        """
        try:
            registered("agentgym.reports", "write")(result)
        except (AgentGymError, OSError) as error:
            folder = result.artifacts.run
            text = (
                f"The run's report could not be written: {message_of(error)}. "
                f"`agentgym runs show {folder} --html FILE` writes it elsewhere."
            )
            self._progress(events.Warned(text))
        self._progress(events.Finished(tuple(result.verdict)))
        return result

    def evaluate(
        self,
        scenario: "str | ToolScenario | None" = None,
        *,
        agent: Any = None,
        command: str | None = None,
        split: str = "test",
        tasks: int | None = None,
        samples: int | None = None,
        prices: Prices | None = None,
        baselines: bool = True,
        task: str | None = None,
        keep: list[Trajectory] | None = None,
        cache_requests: Path | None = None,
    ) -> Evaluation:
        """Measure an agent, or the untrained model, without training.

        Args:
            scenario: The scenario's name, or the result of ``Scenario.from_tools``.
            agent: A trained agent, or its name for ``TrainedAgent.load``. Or your own
                agent, as in :meth:`train`; it is measured with ``config.model``. None
                takes ``config.agent.reference`` or, without one, the scenario's agent.
                ``config.model`` may be a provider's ``openai:MODEL`` or an address.
            command: Instead of ``agent``: a program's command, as in :meth:`train`.
            split: ``validation``, ``test`` or ``out_of_vocabulary``; ``all`` takes
                tasks of every split, also training tasks.
            tasks: Number of tasks.
            samples: Attempts per task.
            prices: Prices of the model's tokens, for the cost.
            baselines: Whether to measure two simple agents on the same tasks, for
                comparison: one does nothing, one calls every tool.
            task: Id of a task, to measure only this task.
            keep: A list to which the attempts are added in full.
            cache_requests: A file of a server's answers, from which equal requests are
                answered, with ``eval_temperature`` 0.

        Raises:
            UsageError: A setting is unusable.
            ProviderError: The model's server permanently refuses to answer.
            RolloutError: No rollout could be scored.
        """
        from agentgym.evaluate.evaluation import evaluate

        if split not in (*Split, EVERY_SPLIT):
            known = ", ".join((*Split, EVERY_SPLIT))
            raise UsageError(f"No split is named {split!r}; known: {known}.")
        own = self.config.agent.reference
        if command is not None:
            agent = ProgramCommand.parse(command)
        trained: TrainedAgent | None = None
        if isinstance(agent, TrainedAgent):
            trained = agent
        elif isinstance(agent, str) and not is_reference(agent):
            trained = TrainedAgent.load(agent)
        elif agent is not None:
            own = reference_of(agent)
        if scenario is not None and not isinstance(scenario, str):
            scenario = scenario.reference
        elif trained is not None:
            named = scenario or self.config.scenario
            scenario = trained.same_tasks(named) or scenario
        config = located(
            self.config.replaced(
                scenario=scenario, agent=own, test_tasks=tasks, eval_samples=samples
            ),
            own_agent=trained is None,
        )
        if trained is not None:
            config = config.replaced(
                model=str(trained.verified_model()),
                eval_temperature=trained.spec.temperature,
                max_tokens=trained.spec.max_tokens,
                agent=trained.spec.agent,
                framework=None
                if trained.spec.agent is None
                else trained.spec.framework,
                lora_rank=0,  # the adapter has its rank, or none is needed
                constrain=None if trained.constrain == "auto" else trained.constrain,
                **_surroundings(trained),
            )
        subject = config.model
        if trained is not None:
            subject = trained.name
        elif config.agent.reference is not None:
            subject = f"{config.agent.reference} on {config.model}"
            from agentgym.rollout.inspection import probed, require_trainable

            require_trainable(config, probed(config))
        return evaluate(
            config,
            split,
            self._progress,
            subject=subject,
            spec=None if trained is None else trained.spec,
            prices=prices,
            baselines=baselines,
            task=task,
            keep=keep,
            cache_requests=cache_requests,
        )

    def deploy(
        self,
        agent: TrainingResult | TrainedAgent | str | Path,
        target: str = "local",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
    ) -> "AgentServer":
        """Serve a trained agent's weights to OpenAI clients, from this process.

        ::

            with Trainer().deploy("coding") as server:
                client = OpenAI(base_url=server.url, api_key="none")

        Args:
            agent: A training result, an agent, or its name for ``TrainedAgent.load``.
            target: ``local``, the only target.
            host: Address to listen on. An address that other machines can reach needs
                ``api_key``.
            port: Port to listen on; 0 takes a free port.
            api_key: Key that requests must have; None requires none.

        Returns:
            The server, which answers until its ``close()``; ``url`` is the base URL.

        Raises:
            UsageError: The target is unknown, or the address cannot be used.
            AgentGymError: The agent or its weights cannot be loaded.
        """
        from agentgym.serving.server import AgentServer

        if target != "local":
            raise UsageError(f"No target is named {target!r}; there is: local.")
        if isinstance(agent, TrainingResult):
            agent = agent.trained
        trained = agent if isinstance(agent, TrainedAgent) else TrainedAgent.load(agent)
        return AgentServer.of(
            trained, trained.name, host=host, port=port, api_key=api_key
        )


def named_subject(
    scenario: "str | ToolScenario | None",
    agent: Any,
    command: str | None,
    tasks: str | Path | None,
    check: Callable[..., Any] | str | None,
    check_command: str | None,
) -> dict[str, Any]:
    """Convert a user's arguments to the settings ``scenario`` and ``agent``.

    The arguments are those of :meth:`Trainer.train`.
    """
    if scenario is not None and not isinstance(scenario, str):
        scenario = scenario.reference
    if tasks is not None:
        from agentgym.scenarios.tool_tasks.scenario import tasks_reference

        scenario = tasks_reference(tasks, check, check_command)
    if command is not None:
        agent = ProgramCommand.parse(command)
    named: dict[str, Any] = {"scenario": scenario}
    if isinstance(agent, Mapping):
        named |= {f"agent.{name}": value for name, value in agent.items()}
        agent = named.pop("agent.reference", None)
    if agent is not None:
        named["agent.reference"] = reference_of(agent)
    return named


@contextmanager
def _ended_helpfully(run: RunFolder, *, is_new: bool) -> Iterator[None]:
    """Add a note on how to resume the run to an error that ends the block.

    No note is added if the run cannot be resumed. After an interrupt or a UsageError,
    the folder of a new run without a checkpoint is removed instead.
    """
    try:
        yield
    except (UsageError, TrainingInterrupted, KeyboardInterrupt) as error:
        logger.info("Training ends early: %s: %s", type(error).__name__, error)
        if is_new:
            run.discard_unless_begun()
        if isinstance(error, KeyboardInterrupt):
            raise run.interrupted() from None
        raise
    except Exception as error:
        logger.info("Training ends early: %s: %s", type(error).__name__, error)
        is_vain = isinstance(error, TrainingFailedError) and not error.resumable
        says_how = isinstance(error, LimitReached)
        if run.can_go_on() and not is_vain and not says_how:
            error.add_note(resume_hint(str(run.path)))
        raise


def _observer(progress: events.Observer | bool) -> events.Observer:
    """Return an observer; True prints lines, False prints nothing."""
    if isinstance(progress, bool):
        lines = NotebookProgress if in_notebook() else LinesProgress
        return lines() if progress else events.silent
    return progress


def _surroundings(trained: TrainedAgent) -> dict[str, Any]:
    """Return the settings that a user's own agent needs to run as in training.

    One thing differs: the agent's own tools get made-up results, even if they really
    ran in training, until the user allows real calls again.
    """
    given = TrainingConfig.flat(trained.provenance.config)
    has_own = given.get("agent.own_tools") or given.get("agent.allow_tools")
    return {
        **{name: given.get(name) for name in _OF_EPISODES},
        "prompts": given.get("prompts") or None,
        "agent.own_tools": "stub" if has_own else None,
    }
