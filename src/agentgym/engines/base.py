"""Engine: the interface that the training loop uses, with its training data."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Bucket
from agentgym.core.policy import (
    ChatRequest,
    ChatResult,
    Policy,
    RegisteredPolicy,
    ServedPolicy,
)
from agentgym.core.trajectory import ModelCall, RequestedCall, Trajectory
from agentgym.engines.environments import Checked, EngineEnvironment
from agentgym.errors import EngineError, UnsupportedError

CLIP_BOUND = 3.0
"""Largest ratio that counts for a negative advantage (dual clip, arXiv:1912.09729),
since PPO's clip has no bound in that case."""
MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.99)
EPSILON = 1e-5
"""AdamW's epsilon for a model as small as nano, far above the default: it damps weights
whose gradients are mostly noise, such as a rare token's embedding."""
LARGE_EPSILON = 1e-8
"""AdamW's epsilon for other models, its default. A gradient of norm 0.1 over an adapter
of 10M parameters is 0.1 / sqrt(10M) = 3e-5 in each: ``EPSILON`` would damp that too."""
LEARNING_RATE = 4e-4
"""AdamW's learning rate for all weights of a model as small as nano."""
LARGE_LEARNING_RATE = 1e-6
"""AdamW's learning rate for all weights of other models: verl's default."""
LORA_LEARNING_RATE = 1e-4
AFTER_WARM_START = 0.25
"""Factor of the usual learning rates after a warm start. Full steps undid it:
validation of flight_booking fell from 51 to 39 %, and did not fall with a quarter; see
docs/benchmarks_history.md."""
IMITATION_RATE = 1e-3
"""A warm start's learning rate for all weights of a model as small as nano."""
LARGE_IMITATION_RATE = 1e-5
"""A warm start's learning rate for all weights of other models."""
LORA_IMITATION_RATE = 2e-4
"""A warm start's learning rate for an adapter."""
MOST_GAP = 0.1
"""Largest mean difference, in nats, between a token's log-probability at a server and
at the learner. bfloat16 causes some hundredths; other weights or another temperature
cause much more."""
_WARMUP_STEPS = 3
_LEAST_RATE = 0.1


class Allowed:
    """The tokens that a grammar allows at one position of a response.

    Attributes:
        bits: One bit for each token of the vocabulary, the lowest first.
        count: Number of allowed tokens.
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
        position: Its position in the sequence.
        logprob: Its log-probability when it was sampled.
        advantage: The advantage of its model call.
        allowed: The tokens that it was sampled from; None for all.
    """

    position: int
    logprob: float
    advantage: float
    allowed: Allowed | None = None


@dataclass
class TrainingSequence:
    """Model calls of one rollout, each of which continues the previous one's tokens.

    Attributes:
        agent: Name of the agent in a team.
        group: Number of the rollout's group.
        ids: Tokens of the last call's prompt and response.
        trained: The tokens of all its calls that the loss covers.
        calls: Its model calls with at least one such token.
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
        *,
        agent: str = "",
    ) -> Self:
        """Return a sequence of one answer: all tokens trained, with advantage 1.

        Args:
            group: Number of its group.
            prompt_ids: Tokens of the prompt.
            response_ids: Tokens of the answer.
            logprobs: Log-probabilities of the answer's tokens when they were sampled.
            agent: Name of the agent in a team.
        """
        trained = [
            TrainedToken(position, logprob, 1.0)
            for position, logprob in enumerate(logprobs, len(prompt_ids))
        ]
        return cls(agent, group, [*prompt_ids, *response_ids], trained)


@dataclass
class TrainingBatch:
    """The input of one update; the loss is a mean over its trained tokens.

    Attributes:
        sequences: With at least one trained token each.
        spent: Share of the run's budget spent before this update, 0..1.
        rollouts: The step's rollouts, for an engine that reads them itself.
    """

    sequences: list[TrainingSequence] = field(default_factory=list)
    spent: float = 0.0
    rollouts: Sequence[Trajectory] = ()

    @property
    def trained_tokens(self) -> int:
        """Number of tokens that the loss covers."""
        return sum(len(sequence.trained) for sequence in self.sequences)


@dataclass(frozen=True)
class OwnCredit:
    """The training of an engine that reads the rollouts itself.

    Attributes:
        sequences: The sequences that it trained.
        ledger: By rollout id, the bucket of each model call, in order.
        remarks: By rollout id, the effect of its rules on the rollout, for the credit
            log.
    """

    sequences: list[TrainingSequence]
    ledger: dict[str, list[Bucket]]
    remarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class UpdateMetrics:
    """Metrics of one policy update.

    Attributes:
        step: Number of updates, this one included.
        loss: Mean policy loss per trained token.
        grad_norm: Norm of the gradient before clipping.
        entropy: Mean entropy over trained tokens, in nats.
        clip_fraction: Share of trained tokens whose ratio was clipped.
        kl: Mean k3 estimate between the sampling and the updated policy, in nats.
        gap: Mean absolute difference, in nats, between the trained tokens'
            log-probabilities at sampling and at the learner before its update.
        reference_kl: Mean k3 estimate between the reference policy and the policy
            before its update, in nats; None without ``kl_coefficient``.
        ratio_p99: 99th percentile of the trained tokens' ratios: probability at the
            learner before its update, divided by that at sampling; None if not
            measured.
        ratio_max: The largest such ratio.
        effective_share: Effective sample size of the tokens, weighted by these ratios,
            as a share of their number.
        far_off: Sequences that the loss left out, since their ratio was beyond
            ``ratio_limit``.
        learned: For each sequence of the batch, the learner's log-probabilities of its
            trained tokens before the update, in order; empty if not measured.
        entropies: For each sequence, the entropy at each of these tokens, in nats.
        moved: For each sequence, the k3 estimate of ``kl`` at each of these tokens;
            empty for a sequence that was not measured again after the update.
        refused: Why the update was skipped; empty if it was done.
        credit: The training of an engine that reads the rollouts itself; None if it
            trained the batch.
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
    credit: OwnCredit | None = None


class Imitation(ABC):
    """Supervised fine-tuning of a policy on examples, before its on-policy training."""

    @abstractmethod
    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Convert an answer to the tokens that the policy would sample for it.

        Args:
            request: The request to answer. The session's next request continues this
                answer token by token, like a sampled one.
            content: The answer's text, empty for none.
            calls: Its tool calls.

        Raises:
            EngineError: It does not fit the context, or the chat template cannot
                write it.
        """

    @abstractmethod
    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Train on the tokens of ``batch``, weighted by their advantages.

        Ignores the batch's log-probabilities; leaves the engine's ``step`` and
        optimizer unchanged.

        Args:
            batch: The examples, not empty.
            share: Share of the full learning rate, 0..1.

        Returns:
            The mean loss per trained token before the update, in nats; NaN if the
            update was skipped because its gradient was not finite.
        """

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, without an update.

        The default returns NaN: the loss is unknown, and a warm start uses all of its
        examples.
        """
        return math.nan


class Engine(ABC):
    """Trains a policy on batches. Independent of frameworks and scenarios.

    Attributes:
        compares: Whether :meth:`compare` is implemented.
    """

    compares: ClassVar[bool] = False

    @property
    @abstractmethod
    def policy(self) -> Policy | ServedPolicy | RegisteredPolicy:
        """The policy being trained; it always answers with the newest weights."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Number of updates so far, those without training data included."""

    @abstractmethod
    def label(self, call: ModelCall) -> list[Components] | None:
        """Return the components of each token of a response; None if unknown."""

    def allowed(self, call: ModelCall) -> Sequence[Allowed] | None:
        """Return the tokens that a call's grammar allowed at each position.

        Only called for calls with a grammar. None if the response does not follow the
        grammar, or the engine cannot know (the default).
        """
        return None

    @abstractmethod
    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update; an empty batch also increases ``step``."""

    @abstractmethod
    def save_checkpoint(self, folder: Path) -> None:
        """Write weights, optimizer and random state into the existing ``folder``."""

    @abstractmethod
    def load_checkpoint(self, folder: Path) -> None:
        """Continue from the checkpoint of :meth:`save_checkpoint`.

        Raises:
            CheckpointError: A file is missing, truncated or of another model.
        """

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write model and tokenizer in Hugging Face format into ``folder``."""

    def imitation(self) -> Imitation:
        """Return supervised fine-tuning with its own optimizer, for a warm start.

        Raises:
            UnsupportedError: The engine has no imitation (the default).
        """
        raise UnsupportedError(f"{type(self).__name__} has no imitation().")

    def compare(self, batch: TrainingBatch) -> float:
        """Return how far the weights are from those that sampled a batch.

        Args:
            batch: Sampled at temperature 1; advantages are ignored.

        Returns:
            The mean k3 estimate of the KL divergence per trained token, in nats.

        Raises:
            UnsupportedError: The engine cannot compare (the default).
        """
        raise UnsupportedError(f"{type(self).__name__} has no compare().")

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps the sampling servers awake."""
        return nullcontext()

    def close(self) -> None:
        """Stop generating and free memory; pending requests fail."""


class EngineSummary(NamedTuple):
    """Descriptions of policy and device, e.g. ``nano (1.1M parameters)``, ``CPU``.

    Attributes:
        model: The policy.
        device: The device it is trained on.
        memory: Description of the memory that training takes; empty if unknown.
        form: The format of the model's tool calls, e.g. ``hermes``; empty if unknown.
        path: How the model is sampled and trained, if that is slower than usual.
        drops_reasoning: Whether its template drops earlier reasoning after the next
            user message.
    """

    model: str
    device: str
    memory: str = ""
    form: str = ""
    path: str = ""
    drops_reasoning: bool = False


class EngineFactory(ABC):
    """Creates engines of one kind; importing and checking load neither model nor torch.

    Attributes:
        imitates: Whether its engines implement :meth:`Engine.imitation`; if not,
            ``warm_start`` is refused.
        environment: The environment that ``agentgym engine install`` creates; None if
            the engine needs none.
    """

    imitates: ClassVar[bool] = False
    environment: ClassVar[EngineEnvironment | None] = None

    @abstractmethod
    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check that the engine supports the settings of a run.

        Raises:
            UsageError: A setting, or a combination, is not supported.
            MissingExtraError: Its libraries are not installed.
        """

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings with the engine's own choices filled in, if not set.

        For most engines this is ``concurrency``.

        Raises:
            ModelError: The model's folder cannot be read.
        """
        return config

    def announced(self, config: TrainingConfig) -> str:
        """Return a message about a start that takes minutes; else empty."""
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
            UsageError: See :meth:`check`; nothing was loaded.
            ModelError: The model cannot be loaded or trained.
        """


def scheduled_rate(peak: float, step: int, spent: float) -> float:
    """Return the learning rate of the update that follows ``step`` updates.

    It rises linearly in the first updates, then falls linearly to a tenth of its peak
    at the end of the budget; ``spent`` is the share of the budget used so far.
    """
    left = 1.0 - spent
    return peak * min(1.0, (step + 1) / _WARMUP_STEPS, max(_LEAST_RATE, left))


def check_gap(gap: float, servers: str) -> None:
    """Check that servers answer with the learner's weights.

    Args:
        gap: See :class:`UpdateMetrics`.
        servers: Name of the servers for the message, e.g. ``vLLM``.

    Raises:
        EngineError: The gap exceeds ``MOST_GAP``, or is not a number.
    """
    if gap <= MOST_GAP:
        return
    raise EngineError(
        f"{servers} gave log-probabilities that are {gap:.3f} nats off the learner's "
        f"on average, more than {MOST_GAP}: it answers with other weights, or another "
        "temperature, than the learner has. The step was not kept."
    )
