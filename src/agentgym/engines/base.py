"""What the training loop asks of an engine, and what it gives it to learn from."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult, Policy, ServedPolicy
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.environments import Environment, Finding
from agentgym.errors import EngineError, UnsupportedError

CLIP = 0.2
"""Of the probability ratio, beyond which nothing is gained (PPO, arXiv:1707.06347)."""
CLIP_BOUND = 3.0
"""Of the ratio where the advantage is negative (dual clip, arXiv:1912.09729): without
it one token that has become e^5 times as likely owns the whole step."""
MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.99)
EPSILON = 1e-5
"""Of AdamW for a model as small as nano: far above its default, so that a weight whose
gradient is mere noise, such as a rare token's embedding, is not moved as far as one
that matters. With 1e-8 names were copied worse and worse on validation tasks from step
30 on."""
LARGE_EPSILON = 1e-8
"""Of AdamW for other models, its default: with 1e-5 a step was 0.6 to 0.8 of the rate
at a gradient norm of 0.1."""
LEARNING_RATE = 4e-4
"""Of all weights of a model as small as nano."""
LARGE_LEARNING_RATE = 1e-6
"""Of all weights of other models: a hundredth of an adapter's, as verl's default."""
LORA_LEARNING_RATE = 1e-4
MOST_GAP = 0.1
"""Nats between a token's log-probability at a server and at the learner, on average:
bfloat16 makes some hundredths, other weights or another temperature much more."""
_WARMUP_STEPS = 3
_LEAST_RATE = 0.1


@dataclass(frozen=True)
class TrainedToken:
    """A token that the loss covers.

    Attributes:
        position: In its sequence.
        logprob: When it was sampled.
        advantage: Of its model call.
    """

    position: int
    logprob: float
    advantage: float


@dataclass
class TrainingSequence:
    """Model calls of one rollout whose tokens continue each other exactly.

    Attributes:
        agent: Which agent of a team spoke.
        group: The rollout's group, by number.
        ids: Tokens of the last call's prompt and response.
        trained: The tokens of all its calls that the loss covers.
    """

    agent: str
    group: int
    ids: list[int]
    trained: list[TrainedToken] = field(default_factory=list)


@dataclass
class TrainingBatch:
    """Everything one update is made from; the loss is a mean over its trained tokens.

    Attributes:
        sequences: With at least one trained token each.
        spent: Share of the run's budget that was spent before, 0..1.
    """

    sequences: list[TrainingSequence] = field(default_factory=list)
    spent: float = 0.0

    @property
    def trained_tokens(self) -> int:
        """How many tokens the loss covers."""
        return sum(len(sequence.trained) for sequence in self.sequences)


@dataclass(frozen=True)
class UpdateMetrics:
    """What one policy update did.

    Attributes:
        step: Updates after this one.
        loss: Mean policy loss per trained token.
        grad_norm: Before clipping.
        entropy: Mean over trained tokens, nats.
        clip_fraction: Share of trained tokens whose ratio was clipped.
        kl: Mean of the k3 estimate between sampling and updated policy, nats.
        gap: Mean distance, in nats, of the trained tokens' log-probabilities when they
            were sampled from those that the learner gives them before its update.
        refused: Why the weights were left as they were; empty if they were not.
    """

    step: int
    loss: float = 0.0
    grad_norm: float = 0.0
    entropy: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    gap: float = 0.0
    refused: str = ""


class Imitation(ABC):
    """Teaches a policy by examples, before it is trained on attempts of its own."""

    @abstractmethod
    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Return an answer in the tokens that the policy would sample to give it.

        Args:
            request: What is answered. Its session's next request continues this
                answer token by token, as it would a sampled one.
            content: The answer's text, empty for none.
            calls: Its tool calls.

        Raises:
            EngineError: It does not fit the context, or the chat template cannot
                write it.
        """

    @abstractmethod
    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Make the trained tokens of ``batch`` likelier; advantages are weights.

        Log-probabilities of the batch are not looked at, and the engine's ``step`` and
        optimizer stay as they are.

        Args:
            batch: Not empty.
            share: Of the full learning rate, 0..1.

        Returns:
            The mean loss per trained token before, in nats; NaN if the update was
            left out because it was not finite.
        """

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, and change nothing.

        By default NaN: it cannot be told, so that a lesson goes on to its end.
        """
        return math.nan


class Engine(ABC):
    """Updates a policy from batches. Knows no framework and no scenario."""

    @property
    @abstractmethod
    def policy(self) -> Policy | ServedPolicy:
        """The policy being trained; it always answers with the newest weights."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Updates done so far, those without anything to learn included."""

    @abstractmethod
    def label(self, call: ModelCall) -> list[Components] | None:
        """Return the components of each token of a response; None if unknown."""

    @abstractmethod
    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update; an empty batch counts as one, too."""

    @abstractmethod
    def save_checkpoint(self, folder: Path) -> None:
        """Write weights, optimizer and random state into the existing ``folder``."""

    @abstractmethod
    def load_checkpoint(self, folder: Path) -> None:
        """Continue from what :meth:`save_checkpoint` wrote.

        Raises:
            CheckpointError: A file is missing, cut short or of another model.
        """

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write model and tokenizer in Hugging Face format into ``folder``."""

    def imitation(self) -> Imitation:
        """Return a teacher with an optimizer of its own; only if it ``imitates``.

        Raises:
            UnsupportedError: The default: the engine cannot.
        """
        raise UnsupportedError(f"{type(self).__name__} has no imitation().")

    def sampling(self) -> AbstractContextManager[None]:
        """Return what rollouts run within; servers are awake there, else asleep."""
        return nullcontext()

    def close(self) -> None:
        """Stop generating and free memory; pending requests fail."""


class EngineSummary(NamedTuple):
    """The policy and the device in words, e.g. ``nano (1.1M parameters)``, ``CPU``.

    ``memory`` is what training takes of the device's; ``form`` is the form of the
    model's tool calls, e.g. ``hermes``. Both are empty if not known. ``path`` is how
    the model is sampled and trained where that is not the usual way, and what it costs.
    ``drops_reasoning``: whether its template leaves earlier reasoning out once the user
    speaks again.
    """

    model: str
    device: str
    memory: str = ""
    form: str = ""
    path: str = ""
    drops_reasoning: bool = False


class EngineFactory(ABC):
    """Makes engines of one kind; importing and checking load no model and no torch.

    Attributes:
        imitates: Whether its engines have :meth:`Engine.imitation`; ``warm_start`` is
            refused if not.
        environment: What ``agentgym engine install`` makes; None if the engine needs
            no environment of its own.
    """

    imitates: ClassVar[bool] = False
    environment: ClassVar[Environment | None] = None

    @abstractmethod
    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check that the engine can do what ``config`` asks of it.

        Raises:
            UsageError: A setting, or a combination, that it does not support.
            MissingExtraError: Its libraries are not installed.
        """

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings with defaults for the pace at which the model answers."""
        return config

    def announced(self, config: TrainingConfig) -> str:
        """Return a sentence about a start that takes minutes; empty if it does not."""
        return ""

    def composed(self, config: TrainingConfig) -> str:
        """Return what the library below would be started with; empty without one."""
        return ""

    def examine(self) -> Iterator[Finding]:
        """Look at environment and machine, and start a tiny model where that can be.

        For ``agentgym engine check``, which shows each finding as it comes.
        """
        yield from ()

    @abstractmethod
    def create(self, config: TrainingConfig) -> Engine:
        """Check the settings, load the model, and start to answer requests.

        Raises:
            UsageError: As :meth:`check`; nothing was loaded.
            ModelError: The model cannot be loaded or trained.
        """


def scheduled_rate(peak: float, step: int, spent: float) -> float:
    """Return the learning rate of the update after ``step`` others.

    It rises linearly in the first updates, then falls linearly to a tenth of its peak
    where the budget, of which the share ``spent`` is gone, ends.
    """
    left = 1.0 - spent
    return peak * min(1.0, (step + 1) / _WARMUP_STEPS, max(_LEAST_RATE, left))


def check_gap(gap: float, servers: str) -> None:
    """Check that servers answer with the weights that the learner has.

    Args:
        gap: As :class:`UpdateMetrics` has it.
        servers: Whose log-probabilities they are, e.g. ``vLLM``.

    Raises:
        EngineError: The gap is more than ``MOST_GAP``, or no number.
    """
    if gap <= MOST_GAP:
        return
    raise EngineError(
        f"{servers} gave log-probabilities that are {gap:.3f} nats off the learner's "
        f"on average, more than {MOST_GAP}: it answers with other weights, or another "
        "temperature, than the learner has. The step was not kept."
    )
