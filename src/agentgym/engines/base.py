"""The interface of an engine for the training loop, and its training data."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult, Policy, ServedPolicy
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.environments import Checked, EngineEnvironment
from agentgym.errors import EngineError, UnsupportedError

CLIP_BOUND = 3.0
"""The most that the ratio counts where the advantage is negative (dual clip,
arXiv:1912.09729), since PPO's clip has no bound there."""
MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.99)
EPSILON = 1e-5
"""AdamW's epsilon for a model as small as nano, far above the default: it damps weights
whose gradients are mere noise, such as a rare token's embedding."""
LARGE_EPSILON = 1e-8
"""AdamW's epsilon for other models, its default. A gradient of norm 0.1 over an adapter
of 10M parameters is 0.1 / sqrt(10M) = 3e-5 in each: ``EPSILON`` would damp that too."""
LEARNING_RATE = 4e-4
"""AdamW's rate for all weights of a model as small as nano."""
LARGE_LEARNING_RATE = 1e-6
"""The same for all weights of other models: verl's default."""
LORA_LEARNING_RATE = 1e-4
MOST_GAP = 0.1
"""Nats between a token's log-probability at a server and at the learner, on average:
bfloat16 makes some hundredths, other weights or another temperature much more."""
_WARMUP_STEPS = 3
_LEAST_RATE = 0.1


class Allowed:
    """The tokens that a grammar allows at one place of a response.

    Attributes:
        bits: One for each token of the vocabulary, the lowest first.
        count: How many are allowed.
    """

    __slots__ = ("bits", "count")

    def __init__(self, bits: bytes) -> None:
        self.bits = bits
        self.count = int.from_bytes(bits).bit_count()

    def has(self, token: int) -> bool:
        """Return whether a token is allowed."""
        return bool(self.bits[token >> 3] >> (token & 7) & 1)

    @property
    def only(self) -> int | None:
        """The token, if a single one is allowed."""
        if self.count != 1:
            return None
        return int.from_bytes(self.bits, "little").bit_length() - 1


@dataclass(frozen=True)
class TrainedToken:
    """A token that the loss covers.

    Attributes:
        position: In its sequence.
        logprob: When it was sampled.
        advantage: Of its model call.
        allowed: The tokens that it was sampled from; None for all.
    """

    position: int
    logprob: float
    advantage: float
    allowed: Allowed | None = None


@dataclass
class TrainingSequence:
    """Model calls of one rollout whose tokens continue each other exactly.

    Attributes:
        agent: Which agent of a team spoke.
        group: The rollout's group, by number.
        ids: Tokens of the last call's prompt and response.
        trained: The tokens of all its calls that the loss covers.
        calls: Those with such a token.
    """

    agent: str
    group: int
    ids: list[int]
    trained: list[TrainedToken] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of_answer(
        cls,
        group: int,
        prompt_ids: Sequence[int],
        response_ids: Sequence[int],
        logprobs: Sequence[float],
    ) -> Self:
        """Return one answer, all of whose tokens are trained, with an advantage of 1.

        Args:
            group: Its number.
            prompt_ids: Tokens of the prompt.
            response_ids: Tokens of the answer.
            logprobs: Of the answer's tokens, when they were sampled.
        """
        trained = [
            TrainedToken(position, logprob, 1.0)
            for position, logprob in enumerate(logprobs, len(prompt_ids))
        ]
        return cls("", group, [*prompt_ids, *response_ids], trained)


@dataclass
class TrainingBatch:
    """The input of one update; the loss is a mean over its trained tokens.

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
    """Metrics of one policy update.

    Attributes:
        step: Updates after this one.
        loss: Mean policy loss per trained token.
        grad_norm: Before clipping.
        entropy: Mean over trained tokens, nats.
        clip_fraction: Share of trained tokens whose ratio was clipped.
        kl: Mean of the k3 estimate between sampling and updated policy, nats.
        gap: Mean distance, in nats, of the trained tokens' log-probabilities when they
            were sampled from those that the learner gives them before its update.
        reference_kl: Mean of the k3 estimate between the reference policy and the
            policy before its update, nats; None without ``kl_coefficient``.
        ratio_p99: 99 % of the trained tokens have at most this ratio of the probability
            that the learner gives them before its update to that of sampling; None if
            not measured.
        ratio_max: The largest such ratio.
        effective_share: Effective sample size of the tokens, weighed by these ratios,
            as a share of their number.
        far_off: Sequences that the loss left out, since the learner's probability of
            them is too far from that of sampling: beyond ``ratio_limit``.
        learned: For each sequence of the batch, the log-probability that the learner
            gives each of its trained tokens before the update, in their order; empty
            if not measured.
        entropies: Likewise the entropy at each of these tokens, nats.
        moved: Likewise the k3 estimate of ``kl`` at each; empty for a sequence that was
            not measured again after the update.
        refused: Why the weights were left as they were; empty if they were not.
    """

    step: int
    loss: float = 0.0
    grad_norm: float = 0.0
    entropy: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    gap: float = 0.0
    reference_kl: float | None = None
    ratio_p99: float | None = None
    ratio_max: float | None = None
    effective_share: float | None = None
    far_off: Sequence[TrainingSequence] = ()
    learned: Sequence[Sequence[float]] = ()
    entropies: Sequence[Sequence[float]] = ()
    moved: Sequence[Sequence[float]] = ()
    refused: str = ""


class Imitation(ABC):
    """Supervised fine-tuning of a policy on examples, before its on-policy training."""

    @abstractmethod
    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Return an answer in the tokens that the policy would sample to give it.

        Args:
            request: The request to answer. Its session's next request continues this
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

        Ignores the batch's log-probabilities, and leaves the engine's ``step`` and
        optimizer unchanged.

        Args:
            batch: Not empty.
            share: Of the full learning rate, 0..1.

        Returns:
            The mean loss per trained token before the update, in nats; NaN if the
            update was skipped because its gradient was not finite.
        """

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, without an update.

        The default returns NaN: the loss is unknown, and a warm start goes through all
        of its examples.
        """
        return math.nan


class Engine(ABC):
    """Updates a policy from batches. Knows no framework and no scenario.

    Attributes:
        compares: Whether it has :meth:`compare`.
    """

    compares: ClassVar[bool] = False

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

    def allowed(self, call: ModelCall) -> Sequence[Allowed] | None:
        """Return the tokens that a call's grammar allowed at each of its response's.

        Asked of calls with a grammar only. None if the response is not one of the
        grammar, or the engine cannot know, as the default.
        """
        return None

    @abstractmethod
    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update; an empty batch also counts ``step`` on."""

    @abstractmethod
    def save_checkpoint(self, folder: Path) -> None:
        """Write weights, optimizer and random state into the existing ``folder``."""

    @abstractmethod
    def load_checkpoint(self, folder: Path) -> None:
        """Continue from the checkpoint of :meth:`save_checkpoint`.

        Raises:
            CheckpointError: A file is missing, cut short or of another model.
        """

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write model and tokenizer in Hugging Face format into ``folder``."""

    def imitation(self) -> Imitation:
        """Return supervised fine-tuning with its own optimizer, for a warm start.

        Raises:
            UnsupportedError: The engine has none, as the default.
        """
        raise UnsupportedError(f"{type(self).__name__} has no imitation().")

    def compare(self, batch: TrainingBatch) -> float:
        """Return how far the weights are from those that sampled a batch.

        Args:
            batch: Sampled at temperature 1; advantages are not looked at.

        Returns:
            The mean k3 estimate of the KL divergence per trained token, in nats.

        Raises:
            UnsupportedError: The default: the engine cannot.
        """
        raise UnsupportedError(f"{type(self).__name__} has no compare().")

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps the sampling servers awake."""
        return nullcontext()

    def close(self) -> None:
        """Stop generating and free memory; pending requests fail."""


class EngineSummary(NamedTuple):
    """The policy and the device in words, e.g. ``nano (1.1M parameters)``, ``CPU``.

    Attributes:
        model: The policy.
        device: Where it is trained.
        memory: How much of the device's memory training takes; empty if unknown.
        form: The form of the model's tool calls, e.g. ``hermes``; empty if unknown.
        path: How the model is sampled and trained where that is slower than usual.
        drops_reasoning: Whether its template leaves earlier reasoning out once the
            user speaks again.
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
        environment: The one that ``agentgym engine install`` makes; None if the engine
            needs none of its own.
    """

    imitates: ClassVar[bool] = False
    environment: ClassVar[EngineEnvironment | None] = None

    @abstractmethod
    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check that the engine supports the settings of a run.

        Raises:
            UsageError: A setting, or a combination, that it does not support.
            MissingExtraError: Its libraries are not installed.
        """

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings with how many rollouts run at once, where that is open.

        Raises:
            ModelError: The model's folder cannot be read.
        """
        return config

    def announced(self, config: TrainingConfig) -> str:
        """Return a sentence about a start that takes minutes; empty if it does not."""
        return ""

    def composed(self, config: TrainingConfig) -> str:
        """Return the configuration for the engine's library; empty without one."""
        return ""

    def examine(self) -> Iterator[Checked]:
        """Check environment and machine, and start a tiny model if that is possible.

        ``agentgym engine check`` shows each finding as it comes.
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
        EngineError: The gap is more than ``MOST_GAP``, or not a number.
    """
    if gap <= MOST_GAP:
        return
    raise EngineError(
        f"{servers} gave log-probabilities that are {gap:.3f} nats off the learner's "
        f"on average, more than {MOST_GAP}: it answers with other weights, or another "
        "temperature, than the learner has. The step was not kept."
    )
