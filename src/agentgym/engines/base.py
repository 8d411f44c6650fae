"""Engine: the interface of engines for the training loop, and their training data."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

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
from agentgym.errors import EngineError, UnsupportedError

if TYPE_CHECKING:
    from agentgym.engines.environments import Checked, EngineEnvironment

CLIP_BOUND = 3.0
"""Upper bound of the probability ratio for a negative advantage, where PPO's own clip
has no bound (dual clip, arXiv:1912.09729)."""
MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.99)
EPSILON = 1e-5
"""AdamW's epsilon for a model as small as the built-in ``nano``. It is far above the
default of AdamW, to slow weights whose gradients are mostly noise, such as a rare
token's embedding."""
LARGE_EPSILON = 1e-8
"""AdamW's epsilon for larger models: AdamW's default. ``EPSILON`` would slow them: a
gradient of norm 0.1 over 10M parameters is only 3e-5 in each parameter."""
LEARNING_RATE = 4e-4
"""AdamW's learning rate to train all weights of a model like the built-in ``nano``."""
LARGE_LEARNING_RATE = 1e-6
"""AdamW's learning rate to train all weights of a larger model; verl's default too."""
LORA_LEARNING_RATE = 1e-4
_AFTER_WARM_START = 0.25
"""Factor of ``LEARNING_RATE`` after a warm start (supervised fine-tuning before the
first update). At the full rate ``nano`` lost the warm start's gain: validation of the
scenario flight_booking fell from 51 to 39 %. At a quarter of the rate it did not fall;
see docs/benchmarks_history.md. Larger models and adapters keep their usual rates: at
a quarter of them, a run of some dozen updates hardly changes the model."""
IMITATION_RATE = 1e-3
"""Learning rate of a warm start that trains all weights of a model like ``nano``."""
LARGE_IMITATION_RATE = 1e-5
"""Learning rate of a warm start that trains all weights of a larger model."""
LORA_IMITATION_RATE = 2e-4
"""Learning rate of a warm start that trains an adapter."""
MOST_GAP = 0.1
"""Largest accepted mean difference, in nats, between a token's log-probability at a
server and at the learner. bfloat16 causes a few hundredths. Servers with other weights
or another temperature cause much more."""
TARGET_KL = 0.01
"""KL divergence of an update, in nats, for models that are not small and have no
``learning_rate``. A rate that suits one such model moves another too far, or hardly."""
_KL_MARGIN = 1.5
_SCALES = 0.1, 4.0  # least and most factor of the usual rate
_WARMUP_STEPS = 3
_LEAST_RATE = 0.1


class Allowed:
    """The tokens that a grammar allows at one position of a response.

    Attributes:
        bits: One bit per token of the vocabulary; token 0 is the lowest bit of byte 0.
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
        """The allowed token if only one is allowed; else None."""
        if self.count != 1:
            return None
        return int.from_bytes(self.bits, "little").bit_length() - 1


@dataclass(frozen=True)
class TrainedToken:
    """A token that the loss covers.

    Attributes:
        position: Its index in the sequence.
        logprob: Its log-probability when it was sampled.
        advantage: The advantage of its model call.
        allowed: The tokens that could be sampled at this position; None for all.
    """

    position: int
    logprob: float
    advantage: float
    allowed: Allowed | None = None


@dataclass
class TrainingSequence:
    """Tokens of one or more model calls of a rollout, as one row of training data.

    The prompt of each call begins with all tokens of the call before it.

    Attributes:
        agent: Name of the agent in a team.
        group: Index of the rollout's group (the attempts at one task).
        ids: Tokens of the last call's prompt and response; they include earlier calls.
        trained: The tokens that the loss covers, from all calls.
        calls: The model calls with at least one trained token.
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
        """Return a sequence in which each token of an answer is trained.

        All advantages are 1. ``logprobs`` has the log-probability of each response
        token when it was sampled.
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
        sequences: Training data; each sequence has at least one trained token.
        spent: Share of the run's budget spent before this update, 0..1.
        rollouts: The step's rollouts, for engines that make training data themselves.
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
    """Report of which model calls an engine trained, and with which advantages.

    Only for engines that make training data from the rollouts themselves, instead of
    using the batch's sequences.

    Attributes:
        sequences: The sequences that the engine trained.
        ledger: For each rollout id, one entry per model call, in order: whether the
            call was trained, masked (left out of the loss) or dropped, and why.
        remarks: For each rollout id, details for the run's log of advantages, such as
            the reward that the engine used.
    """

    sequences: list[TrainingSequence]
    ledger: dict[str, list[Bucket]]
    remarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class UpdateFigures:
    """The figures of one policy update.

    Attributes:
        step: Number of updates so far, including this one.
        loss: Mean policy loss per trained token.
        grad_norm: Norm of the gradient before clipping.
        entropy: Mean entropy over trained tokens, in nats.
        clip_fraction: Share of trained tokens whose probability ratio was clipped.
        kl: KL divergence between the sampling policy and the updated policy, in nats;
            mean over trained tokens of the k3 estimate, ``r - 1 - log r`` for a
            probability ratio r.
        logprob_gap: Mean absolute difference, in nats, between the trained tokens'
            log-probabilities at sampling and at the learner before its update. It is
            large if the sampling server has lower precision or other weights.
        reference_kl: KL divergence (mean k3 estimate) between the untrained policy
            and the policy before its update, in nats; None without the setting
            ``kl_coefficient``.
        ratio_p99: 99th percentile of the trained tokens' ratios; None if not measured.
            A ratio is the probability at the learner before its update, divided by
            the probability at sampling.
        ratio_max: The largest ratio; None if not measured.
        effective_share: Effective sample size of the trained tokens weighted by their
            ratios, divided by the number of tokens; None if not measured.
    """

    step: int
    loss: float = 0.0
    grad_norm: float = 0.0
    entropy: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    logprob_gap: float = 0.0
    reference_kl: float | None = None
    ratio_p99: float | None = None
    ratio_max: float | None = None
    effective_share: float | None = None


@dataclass(frozen=True)
class UpdateMetrics(UpdateFigures):
    """Result of one policy update: its figures, and values for each trained token.

    Attributes:
        far_off: Sequences that the loss left out because their mean ratio was beyond
            the setting ``ratio_limit``.
        learned: For each sequence of the batch, the learner's log-probabilities of its
            trained tokens before the update, in order; empty if not measured.
        entropies: For each sequence, the entropy at each trained token, in nats.
        moved: For each sequence, the estimate of ``kl`` at each trained token; empty
            for a sequence that was not measured again after the update.
        refused: Why the update was skipped; empty if it was not skipped.
        credit: Report of an engine that makes its training data itself; None if the
            engine trained the batch's sequences.
    """

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
        """Convert a given answer to tokens, as if the policy had sampled it.

        The session's next request continues these tokens, as after a sampled answer.

        Args:
            request: The request to answer.
            content: The answer's text; empty for none.
            calls: The answer's tool calls.

        Raises:
            EngineError: The answer does not fit the context, or the chat template
                cannot write it.
        """

    @abstractmethod
    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Train on the tokens of ``batch``, weighted by their advantages.

        The batch's log-probabilities are ignored. The engine's ``step`` and optimizer
        do not change.

        Args:
            batch: The examples, not empty.
            share: Share of the full learning rate, 0..1.

        Returns:
            The mean loss per trained token before the update, in nats; NaN if the
            update was skipped because its gradient was not finite.
        """

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, without an update.

        A warm start (fine-tuning before the first update) ends early when this loss no
        longer falls on held-out examples. The base class returns NaN: the loss is
        unknown, and the warm start uses all examples.
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
        """Number of updates so far; updates without training data count too."""

    @abstractmethod
    def label(self, call: ModelCall) -> list[Components] | None:
        """Return for each response token its components; None if they are unknown.

        Components are the kinds of parts of a response, such as tool selection,
        parameters or reasoning. The run's settings choose which ones are trained.
        """

    def allowed(self, call: ModelCall) -> Sequence[Allowed] | None:
        """Return the tokens that a call's grammar allowed at each response position.

        Only called for calls with a grammar. Returns None if the response does not
        follow the grammar, or if the engine cannot compute this (the default).
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
        """Return an object that fine-tunes the policy on examples, for a warm start.

        The object has its own optimizer.

        Raises:
            UnsupportedError: The engine does not support a warm start (the default).
        """
        raise UnsupportedError(f"{type(self).__name__} has no imitation().")

    def compare(self, batch: TrainingBatch) -> float:
        """Return how far the policy is from the policy that sampled a batch.

        Args:
            batch: Sampled at temperature 1; advantages are ignored.

        Returns:
            The mean k3 estimate of the KL divergence per trained token, in nats.

        Raises:
            UnsupportedError: The engine cannot compare (the default).
        """
        raise UnsupportedError(f"{type(self).__name__} has no compare().")

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context manager; in its block the engine can answer requests."""
        return nullcontext()

    def close(self) -> None:
        """Stop sampling and free memory; pending requests fail."""


class EngineSummary(NamedTuple):
    """Descriptions of policy and device, for the plan that a run prints first.

    Attributes:
        model: The policy, e.g. ``nano (1.1M parameters)``.
        device: The device that trains the policy, e.g. ``CPU``.
        memory: The memory that training takes; empty if unknown.
        form: The format of the model's tool calls, e.g. ``hermes``; empty if unknown.
        path: Limits of computing this model, e.g. that it is slower since sequences
            cannot be packed; empty for most models.
        drops_reasoning: Whether the chat template leaves out the reasoning of earlier
            answers once a new user message follows.
    """

    model: str
    device: str
    memory: str = ""
    form: str = ""
    path: str = ""
    drops_reasoning: bool = False


class EngineFactory(ABC):
    """Checks settings for one kind of engine, and creates such engines.

    Importing a factory and :meth:`check` load neither the model nor torch.

    Attributes:
        imitates: Whether the engines implement :meth:`Engine.imitation`; if not,
            ``warm_start`` is refused.
        environment: The environment that ``agentgym engine install`` creates; None if
            the engine needs none.
        supports: Those settings that only some engines support, such as ``precision``,
            which this one supports: the others are refused. None refuses none.
    """

    imitates: ClassVar[bool] = False
    environment: "ClassVar[EngineEnvironment | None]" = None
    supports: ClassVar[frozenset[str] | None] = None

    @abstractmethod
    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check that the engine supports the settings of a run.

        Raises:
            UsageError: A setting, or a combination, is not supported.
            MissingExtraError: The engine's libraries are not installed.
        """

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings, with the engine's defaults for settings left unset.

        Most engines fill in ``concurrency``.

        Raises:
            ModelError: The model's folder cannot be read.
        """
        return config

    def announced(self, config: TrainingConfig) -> str:
        """Return a message that the engine takes minutes to start; empty if not."""
        return ""

    def composed(self, config: TrainingConfig) -> str:
        """Return the engine library's configuration as text; empty if it has none."""
        return ""

    def examine(self) -> "Iterator[Checked]":
        """Check the environment and the machine; yield the result of each check.

        ``agentgym engine check`` prints the results. Some engines also serve a tiny
        model as a test. An engine without checks yields nothing (the default).
        """
        yield from ()

    @abstractmethod
    def create(self, config: TrainingConfig) -> Engine:
        """Check the settings, load the model, and start to answer requests.

        Raises:
            UsageError: :meth:`check` refuses a setting; nothing was loaded.
            ModelError: The model cannot be loaded or trained.
        """


def usual_rates(
    *, has_adapter: bool, is_small: bool, is_warmed: bool = False
) -> tuple[float, float]:
    """Return two default learning rates: for updates, and for a warm start.

    They depend on whether an adapter is trained, on the size of the model, and that for
    updates of a small model also on whether a warm start came before.
    """
    if has_adapter:
        return LORA_LEARNING_RATE, LORA_IMITATION_RATE
    if is_small:
        share = _AFTER_WARM_START if is_warmed else 1.0
        return share * LEARNING_RATE, IMITATION_RATE
    return LARGE_LEARNING_RATE, LARGE_IMITATION_RATE


def scheduled_rate(peak: float, step: int, spent: float) -> float:
    """Return the learning rate of the next update, after ``step`` updates.

    In the first updates the rate rises linearly to ``peak``. Then it falls linearly
    with the share of the run's budget that is ``spent``, to a tenth of ``peak``.
    """
    falling = 1.0 - (1.0 - _LEAST_RATE) * spent
    return peak * min((step + 1) / _WARMUP_STEPS, falling)


def sized_by_kl(scale: float, kl: float, step: int) -> float:
    """Return the factor of the next update's rate, from the last update's KL.

    The KL divergence of an update is kept near ``TARGET_KL`` as PPO keeps it with its
    adaptive penalty (arXiv:1707.06347, section 4): far below, the factor grows by half,
    but not while the rate still rises, in the first updates; far above, it is halved.
    """
    if kl > _KL_MARGIN * TARGET_KL:
        scale /= 2
    elif step >= _WARMUP_STEPS - 1 and 0 < kl < TARGET_KL / _KL_MARGIN:
        scale *= 1.5
    least, most = _SCALES
    return min(most, max(least, scale))


def check_gap(gap: float, servers: str) -> None:
    """Check that servers answer with the learner's weights.

    ``gap`` is the mean difference of log-probabilities in nats, as in
    :class:`UpdateMetrics`. ``servers`` is the servers' name in the error message.

    Raises:
        EngineError: The gap is larger than ``MOST_GAP``, or is NaN.
    """
    if gap <= MOST_GAP:
        return
    raise EngineError(
        f"{servers} gave log-probabilities that are {gap:.3f} nats off the learner's "
        f"on average, more than {MOST_GAP}: it answers with other weights, or another "
        "temperature, than the learner has. The step was not kept."
    )
