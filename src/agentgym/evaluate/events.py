"""Events of a run. An observer is called with each of them.

::

    def observe(event: events.Event) -> None:
        match event:
            case events.StepReport(step=step, reward=reward):
                print(step, reward)

    Trainer(progress=observe).train("coding")
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.engines.base import UpdateFigures
from agentgym.evaluate.metrics import Metrics

if TYPE_CHECKING:  # observers of a run must not load the gateway
    from agentgym.rollout.inspection import AgentReport


class Event:
    """Base class of all events."""


type Observer = Callable[[Event], Any]
"""A function that receives each event; only answers to a :class:`Question` count."""


def silent(event: Event) -> None:
    """Ignore an event: the observer of a run that shows nothing."""


@dataclass(frozen=True)
class Plan(Event):
    """The run is about to start; this is its plan.

    An empty text means that the value is unknown or not used.

    Attributes:
        run: The run's folder.
        model: Description of the policy, e.g. ``"nano (1.1M parameters, full
            weights)"``.
        device: ``cpu`` or the GPU's name.
        workers: Number of worker processes. Each runs ``concurrency`` episodes at once.
        steps: Maximum number of policy updates within the budget.
        held_out: Number of rollouts in the measurement before training. The measurement
            after training has as many.
        validations: Maximum number of validations, of ``eval_tasks`` rollouts each.
        resumed_step: The step from which the run continues; None for a new run.
        agent: The report on a trial of the user's own agent, if there is one.
        memory: Description of the memory that training needs on the device.
        saved_as: The name under which the trained agent is saved.
        trained: The tokens that the model learns from: a value of ``train_tokens``, or
            names of :class:`~agentgym.core.components.Component`.
        notes: Remarks on the settings and the tasks, in sentences.
        form: The model's tool-call format, e.g. ``hermes``.
        path: Why sampling and training will be slower than usual; else empty.
        drops_reasoning: Whether the chat template drops the reasoning of earlier
            answers after the next user message.
        answers: Description of the limits of answers and rollouts.
        judge: Description of the judge, its use and its price.
        expected: Description of the expected duration.
        objective: Description of the algorithm and of the KL penalty.
    """

    config: TrainingConfig
    run: Path
    model: str
    device: str
    sandbox: str
    workers: int
    steps: int
    held_out: int
    validations: int
    resumed_step: int | None = None
    agent: "AgentReport | None" = None
    memory: str = ""
    saved_as: str = ""
    trained: str = ""
    notes: tuple[str, ...] = ()
    form: str = ""
    path: str = ""
    drops_reasoning: bool = False
    answers: str = ""
    judge: str = ""
    expected: str = ""
    objective: str = ""


@dataclass(frozen=True, kw_only=True)
class StepReport(UpdateFigures, Event):
    """A training step has ended and was saved; these are its figures.

    Attributes:
        episodes: Number of training rollouts done, of at most ``budget``.
        reward: Mean reward of the step's scored rollouts.
        success_rate: Share of the step's scored rollouts that succeeded.
        tool_reliability: Share of the tool calls in these rollouts that ran without an
            error.
        skipped_groups: Number of groups without a training signal, e.g. because their
            rollouts had equal rewards. A group has the step's rollouts of one task.
        tokens_per_second: Sampled tokens of all rollouts per wall second.
        seconds_left: Remaining seconds for the whole budget, at the pace so far.
        right_tool: Share of needed calls whose tool was called; None if unknown.
        right_arguments: Share of needed calls made with the right arguments; None if
            unknown.
        sequences: Mean number of training sequences per rollout. Model calls are one
            sequence if each continues the exact tokens of the call before.
        breaks: Number of model calls that continue a conversation, but not its exact
            tokens. Each of them starts a new sequence.
        answers_cut: Share of the model's answers that were cut at the token limit.
        sequences_masked: Number of sequences that the loss left out, since their mean
            ratio is above ``ratio_limit`` or below its inverse.
    """

    episodes: int
    budget: int
    reward: float
    success_rate: float
    tool_reliability: float
    trained_tokens: int
    skipped_groups: int
    groups: int
    dropped: int
    sampled_tokens: int
    rollout_seconds: float
    update_seconds: float
    tokens_per_second: float
    seconds_left: float
    right_tool: float | None = None
    right_arguments: float | None = None
    sequences: float = 0.0
    breaks: int = 0
    answers_cut: float = 0.0
    sequences_masked: int = 0


@dataclass(frozen=True)
class Message(Event):
    """A sentence, e.g. that something slow starts or how much fits into the time."""

    text: str


@dataclass(frozen=True)
class Warned(Event):
    """A warning, in one or more sentences."""

    text: str


@dataclass(frozen=True)
class PhaseStarted(Event):
    """A phase of ``total`` rollouts starts, e.g. ``before`` or ``rollouts`` (a step's).

    In ``imitation``, the model learns from rollouts that were run before.
    """

    name: str
    total: int


@dataclass(frozen=True)
class RolloutDone(Event):
    """A rollout of the current phase has ended."""


@dataclass(frozen=True)
class BaselineMeasured(Event):
    """The untrained policy was measured on held-out tasks."""

    metrics: Metrics


@dataclass(frozen=True)
class TimeLeft(Event):
    """The most seconds left, estimated before a warm start and the first step."""

    seconds: float


@dataclass(frozen=True)
class WarmStartDone(Event):
    """The warm start is over; ``words`` describe the calls that were learned from."""

    words: str
    metrics: Metrics


@dataclass(frozen=True)
class Validated(Event):
    """The policy was validated after ``step`` updates; ``reached``: the goal is."""

    step: int
    metrics: Metrics
    reached: bool


@dataclass(frozen=True)
class Stalled(Event):
    """Writing to the disk is delayed for this reason; None once it works again."""

    reason: str | None


@dataclass(frozen=True)
class Ended(Event):
    """Training is over, for a reason such as ``budget spent``."""

    reason: str
    ledger: Ledger


@dataclass(frozen=True)
class Finished(Event):
    """The run is over; the sentences say whether training helped."""

    verdict: tuple[str, ...]


@dataclass(frozen=True)
class Question(Event):
    """A yes-or-no question. An observer returns its answer; None if no user can answer.

    Attributes:
        about: The subject. ``train``: whether to train despite reasons why training
            may fail. ``warm start``: whether to begin with one. ``tool``: whether a
            tool of the user's own agent may really run; else its calls get made-up
            answers. ``rent``, ``spend``: whether to rent a machine, to spend money.
        facts: Sentences to show before the question.
    """

    about: Literal["train", "warm start", "tool", "rent", "spend"]
    facts: tuple[str, ...]
    text: str
