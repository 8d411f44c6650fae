"""TrainingResult: the metrics of a run, and its trained agent."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, ValidationError, computed_field, model_validator

from agentgym.core.agent import COMMAND, is_command
from agentgym.core.config import agent_reference
from agentgym.core.files import write_json
from agentgym.core.ledger import Ledger
from agentgym.core.notebook import Shown
from agentgym.core.records import Record
from agentgym.errors import AgentGymError, first_problem
from agentgym.evaluate.advice import next_steps
from agentgym.evaluate.compare import (
    ALPHA,
    Comparison,
    Effect,
    compare,
    measure_effect,
    paired,
)
from agentgym.evaluate.criteria import Goal, compare_goals
from agentgym.evaluate.intervals import points
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, percent, plural
from agentgym.evaluate.shown import ShownResult, Span
from agentgym.models.folder import is_small
from agentgym.scenarios.packs import is_tasks_file
from agentgym.train.export import Saved, export_agent
from agentgym.train.forgetting import Forgetting
from agentgym.train.run_folder import RESULT_FILE, read_result
from agentgym.train.run_state import WarmStart
from agentgym.train.stopping import SPENT
from agentgym.train.trained_agent import TrainedAgent

if TYPE_CHECKING:
    from agentgym.train.run_context import RunContext

_STYLES = {"helped": "bold green", "hurt": "bold red", "made no difference": "bold"}


class Artifacts(Record):
    """Paths of a run's results.

    Attributes:
        run: The run folder.
        agent: Folder of the trained agent, for ``TrainedAgent.load``.
    """

    run: Path
    agent: Path


class TrainingResult(Shown, Record):
    """Metrics before and after training on held-out tasks, and paths of the results.

    Attributes:
        scenario: Name of the scenario that the policy was trained on.
        config: All settings of the run, by name.
        baseline: Metrics of the untrained policy on the main set of held-out tasks.
        metrics: Metrics of the trained policy on the same tasks.
        breakdown: Metrics before and after training on the other held-out sets, by name
            (``level 3``, ``out of vocabulary``).
        warm_start: Metrics after the warm start, on the same tasks as ``baseline``;
            None without a warm start. ``warm_breakdown`` has the other held-out sets.
        imitated: Record of the warm start; None without a warm start.
        criteria: The goal, or else the scenario's success criteria: the minimum of each
            share, 0..1.
        validations: Step and success rate, 0..1, of each validation.
        next_steps: What to try next, in sentences, if training did not help.
        stopped: Why training ended.
        steps: Number of policy updates.
        weights_step: Step of the exported weights: those of the best validation, or the
            newest if the goal was reached.
        episodes: Number of training rollouts.
        device: Description of the training device; empty if it was not recorded.
        wall_seconds: Wall seconds of the whole run, with evaluations; the sum over all
            resumes.
        cpu_seconds: CPU seconds of this machine's processes; the sum over all resumes.
        peak_memory_mb: Peak memory of all processes together, in MiB. Shared memory
            counts once.
        ledger: Numbers of trained, masked and dropped model calls, with reasons.
        forgetting: How much training changed the model's answers to everyday questions.
        saved: The saved version of the agent, and whether it became the default.
        artifacts: Paths of the results.
    """

    scenario: str
    config: dict[str, Any]
    baseline: Metrics
    metrics: Metrics
    breakdown: dict[str, tuple[Metrics, Metrics]] = Field(default_factory=dict)
    warm_start: Metrics | None = None
    warm_breakdown: dict[str, Metrics] = Field(default_factory=dict)
    imitated: WarmStart | None = None
    criteria: dict[str, float] = Field(default_factory=dict)
    validations: list[tuple[int, float]] = Field(default_factory=list)
    next_steps: list[str] = Field(default_factory=list)
    stopped: str
    steps: int
    weights_step: int
    episodes: int
    device: str = ""
    wall_seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    ledger: Ledger
    forgetting: Forgetting | None = None
    saved: Saved
    artifacts: Artifacts

    @classmethod
    def load(cls, run: Path) -> Self | None:
        """Read the result of a finished run; None if the run has not finished.

        Raises:
            RunFolderError: ``result.json`` exists but cannot be read.
        """
        return read_result(run, cls._read)

    @classmethod
    def _read(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _without_shown(cls, data: Any) -> Any:
        is_written = isinstance(data, dict) and "shown" in data
        return {k: v for k, v in data.items() if k != "shown"} if is_written else data

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shown(self) -> ShownResult:
        """The words and tables of this result; result.json keeps them."""
        return _shown(self)

    def write(self) -> None:
        """Write ``result.json`` into the run folder."""
        write_json(self.artifacts.run / RESULT_FILE, self.model_dump(mode="json"))

    @property
    def effect(self) -> Effect | None:
        """Whether training helped, and which metrics changed significantly.

        None if the measurements before and after training have different tasks.
        """
        return measure_effect(self.baseline, self.metrics, self.breakdown)

    @property
    def gains(self) -> dict[str, Comparison]:
        """The parts of the gain: ``"warm start"`` and ``"training"``, in this order.

        Each compares two measurements of the same held-out tasks, so its differences
        have paired intervals: ``gains["training"].differences["pass_1"]``. Empty
        without a warm start.
        """
        if (warm := self.warm_start) is None:
            return {}
        parts = {"warm start": (self.baseline, warm), "training": (warm, self.metrics)}
        return {
            name: compare(*sides) for name, sides in parts.items() if paired(*sides)
        }

    @property
    def gain_words(self) -> list[str]:
        """Sentences on the gain by warm start and by training; [] if unknown.

        The first says if training added nothing, or took something away.
        """
        if len(parts := self.gains) < 2:
            return []
        training = parts["training"]
        steps = plural(self.steps, "step")
        if not self.steps:
            said = "Training added nothing: no step came after the warm start."
        elif not self.weights_step:
            said = f"Training added nothing: its {steps} did not do better on "
            said += "validation tasks, so the weights of the warm start were kept."
        elif training.p_value >= ALPHA:
            said = f"Training added nothing beyond chance in {steps}."
        elif training.differences["pass_1"].value < 0:
            said = f"Training took away some of the warm start's gain in {steps}; only "
            said += "on validation tasks its weights were better."
        else:
            said = f"Training added to the warm start's gain in {steps}."
        split = "; ".join(
            f"{name} {points(part.differences['pass_1'])}"
            for name, part in parts.items()
        )
        tasks = plural(training.tasks, "task")
        return [said, f"pass^1 by part, paired over {tasks}: {split}."]

    @property
    def verdict(self) -> list[str]:
        """Sentences on whether training helped, and on better and worse results."""
        return [words for words, _ in self.shown.verdict]

    @property
    def is_better(self) -> bool:
        """Whether the agent solves more held-out tasks than before, beyond chance."""
        return self.effect is not None and self.effect.verdict == "helped"

    @property
    def goals(self) -> list[Goal]:
        """The success criteria, each with the value measured on held-out tasks."""
        return compare_goals(self.criteria, self.baseline, self.metrics)

    @property
    def trained(self) -> TrainedAgent:
        """The trained agent: weights, prompt, tools and limits."""
        return TrainedAgent.load(self.artifacts.agent)

    @property
    def trained_model(self) -> TrainedAgent:
        """Another name for :attr:`trained`."""
        return self.trained

    @property
    def agent(self) -> Any:
        """Your own agent, with the trained model.

        It has the same type as the agent that you passed, which is not changed. If you
        passed no agent or a program's command, this is :attr:`trained`.
        """
        trained = self.trained
        reference = agent_reference(self.config)
        if reference is None or is_command(reference):
            return trained
        return getattr(trained, self.export)()

    @property
    def export(self) -> str:
        """Name of the ``TrainedAgent`` method that exports to the run's framework."""
        name = f"to_{self.config.get('framework')}"
        return name if hasattr(TrainedAgent, name) else "to_langchain"

    def save(self, name: str) -> Path:
        """Save the agent as the default version of ``name``; return its folder."""
        return self.trained.save(name)

    def to_langchain(self, **options: Any) -> Any:
        """Return the agent as a LangGraph graph.

        ``options`` are the arguments of ``TrainedAgent.to_langchain``.
        """
        return self.trained.to_langchain(**options)

    def to_autogen(self, **options: Any) -> Any:
        """Return the agent as an AutoGen agent.

        ``options`` are the arguments of ``TrainedAgent.to_autogen``.
        """
        return self.trained.to_autogen(**options)

    def to_crewai(self, **options: Any) -> Any:
        """Return the agent as a CrewAI agent.

        ``options`` are the arguments of ``TrainedAgent.to_crewai``.
        """
        return self.trained.to_crewai(**options)


def finish(
    run: "RunContext", stopped: str, weights: int, after: dict[str, Metrics]
) -> TrainingResult:
    """Export the engine's weights, and write and return the run's result.

    ``stopped`` says why training ended. The weights had ``weights`` updates; ``after``
    has their metrics by held-out set, the main set first.
    """
    from agentgym.train.warm_start import can_imitate

    state, config = run.state, run.config
    before, warmed = state.baseline, state.warmed
    main, *others = before
    saved = export_agent(run, weights, after[main])
    run.use.update()
    result = TrainingResult(
        scenario=run.scenario.name,
        config=config.model_dump(mode="json"),
        baseline=before[main],
        metrics=after[main],
        breakdown={name: (before[name], after[name]) for name in others},
        warm_start=warmed.get(main),
        warm_breakdown={name: warmed[name] for name in others if warmed},
        imitated=state.warm_start,
        criteria=config.goal or run.scenario.success_criteria(),
        validations=state.watch.history,
        next_steps=next_steps(
            before[main],
            after[main],
            remarks=[remark.text for remark in state.watch.remarks],
            may_imitate=not config.warm_start and can_imitate(config, run.scenario),
            is_small=is_small(config.model),
        ),
        stopped=stopped,
        steps=state.step,
        weights_step=weights,
        episodes=state.episodes,
        device=run.plan.device,
        wall_seconds=state.wall_seconds,
        cpu_seconds=state.cpu_seconds,
        peak_memory_mb=run.use.peak_memory_mb,
        ledger=state.ledger,
        forgetting=state.forgetting and state.forgetting.without_answers(),
        saved=saved,
        artifacts=Artifacts(run=run.folder.path, agent=run.folder.path / "agent"),
    )
    result.write()
    return result


def effect_lines(result: TrainingResult) -> list[tuple[str, str]]:
    """Return sentences on whether training helped, each with its terminal style.

    They name the metrics that got significantly better or worse, and the goals that
    were reached.
    """
    from agentgym.evaluate.rows import changes_words, verdict_words

    lines = [(_goal_words(result), "")]
    if (effect := result.effect) is not None:
        better, worse = changes_words(effect)
        has_warm_start = result.warm_start is not None
        verdict = verdict_words(effect, has_warm_start=has_warm_start)
        lines = [
            *((words, "bold") for words in result.gain_words),
            (verdict, _STYLES[effect.verdict]),
            (better, "green"),
            (worse, "red" if effect.worse else "dim"),
            *lines,
        ]
    return [(words, style) for words, style in lines if words]


def _goal_words(result: TrainingResult) -> str:
    """Describe which goals are reached, and then which are not; "" without goals.

    Goals that the user did not set are the aims of the scenario.
    """
    goals = result.goals
    reached = ", ".join(_goal(goal) for goal in goals if goal.holds)
    rest = ", ".join(_goal(goal) for goal in goals if not goal.holds)
    if result.config.get("goal") is None:
        aims = f"Of the aims of {result.scenario}"
        parts = [f"reached: {reached}"] if reached else []
        parts += [f"not yet: {rest}"] if rest else []
        return f"{aims}, {'; '.join(parts)}." if parts else ""
    if rest:
        return f"{f'Reached: {reached}. ' if reached else ''}Goal missed: {rest}."
    return f"Goal reached: {reached}."


def _goal(goal: Goal) -> str:
    name = goal.name.replace("_", " ")
    if goal.reached is None:
        return f"{name} not measured (of {percent(goal.least)})"
    share = percent(goal.reached)
    if not goal.holds and share == percent(goal.least):
        share = f"{100 * goal.reached:.1f} %"  # 29.6 % is not 30 %
    return f"{name} {share} (of {percent(goal.least)})"


def _shown(result: TrainingResult) -> ShownResult:
    """Return the words and tables of a result."""
    from agentgym.evaluate.rows import (
        BRIEF,
        compared,
        family_rows,
        ledger_lines,
        ledger_spans,
        metrics_lines,
    )

    before, after, warm = result.baseline, result.metrics, result.warm_start
    imitated, moved = result.imitated, result.forgetting
    further = {
        name: compared(*sides, BRIEF, result.warm_breakdown.get(name))
        for name, sides in result.breakdown.items()
    }
    forgetting: list[Span] = []
    if moved is not None and moved.kl is not None:
        style = "yellow" if moved.is_large else "dim"
        forgetting = [(f"On everyday questions: {moved.words()}.", style)]
    return ShownResult(
        main=compared(before, after, warm=warm),
        warm_start="" if imitated is None else f"Warm start: {imitated.words()}.",
        families=family_rows(before, after, warm),
        further=further,
        ledger=ledger_spans(result.ledger),
        forgetting=forgetting,
        role_calls=ledger_lines(result.ledger),
        role_metrics=metrics_lines(before, after),
        before=before.pass_1.value,
        validations=result.validations,
        after=after.pass_1.value,
        verdict=effect_lines(result),
        spent=(
            f"{plural(result.steps, 'step')}, {plural(result.episodes, 'rollout')}, "
            f"{duration(result.wall_seconds)} ({duration(result.cpu_seconds)} of CPU "
            f"time, {result.peak_memory_mb / 1024:.1f} GB). Ended: "
            f"{result.stopped}{_more(result)}. {weights_words(result)}"
        ),
        saved=saved_as(result.saved),
        next_steps=instead(result),
        use=use_of(result)[1],
    )


def _more(result: TrainingResult) -> str:
    """Return the command that trains on after the budget; empty if there was more."""
    run, budget = result.artifacts.run, 2 * result.config["episodes"]
    more = f"; `agentgym train --resume {run} --episodes {budget}` trains on"
    return more if result.stopped == SPENT and result.steps else ""


def weights_words(result: TrainingResult) -> str:
    """Return a sentence on the training step from which the saved weights come."""
    if not result.steps:
        return "The weights are those of the warm start: no step came after it."
    if result.weights_step == 0:
        return (
            "The weights are those of the warm start: no later ones did better on "
            "validation tasks beyond chance."
        )
    if result.weights_step == result.steps:
        return f"The weights are those of the last step, {result.steps}."
    return (
        f"The weights are those of step {result.weights_step}, which did best on "
        "validation tasks."
    )


def use_of(result: TrainingResult) -> tuple[str, str]:
    """Return example code that uses the trained agent: language, then text."""
    reference = agent_reference(result.config)
    if reference is not None and is_command(reference):
        return "sh", (
            f"agentgym serve {result.saved.name} --port 8000\n"
            "OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none "
            f"{reference.removeprefix(COMMAND)}\n"
        )
    return "python", (
        "from agentgym import TrainedAgent\n"
        f'agent = TrainedAgent.load("{result.saved.name}").{_exported(result)}\n'
    )


def _exported(result: TrainingResult) -> str:
    """Return the method call that exports a trained agent, as in ``to_langchain()``.

    The call has the argument ``tools=[...]`` if the user must pass the functions to
    run, because the tools came from a tasks file or each task had its own tools.
    """
    source = str(result.config.get("scenario", ""))
    has_none = is_tasks_file(source) and "tools=%40" not in source
    with suppress(AgentGymError):  # it was removed since
        spec = result.trained.spec
        has_none = has_none or (spec.agent is None and not spec.tools)
    return f"{result.export}({'tools=[...]' if has_none else ''})"


def instead(result: TrainingResult) -> list[str]:
    """Return the next steps for an agent that is not better; [] if it is better."""
    if result.is_better or result.saved.is_default:
        return []
    return result.next_steps or [f"See `agentgym doctor {result.artifacts.run}`."]


def saved_as(saved: Saved) -> str:
    """Describe a saved version of an agent, and whether it is the default."""
    if saved.is_default:
        return f"Saved as {saved.name}, now the default: {saved.reason}."
    return (
        f"Saved as {saved.name}, not as the default: {saved.reason}. Make it the "
        f"default with: agentgym agents use {saved.name}"
    )
