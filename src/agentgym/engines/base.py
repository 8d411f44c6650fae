"""What the rollout layer asks of a policy, and the trainer of an engine."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.trajectory import RequestedCall, Trajectory


@dataclass(frozen=True)
class ChatRequest:
    """One chat completion asked of the policy.

    Attributes:
        messages: OpenAI-shaped messages.
        tools: OpenAI-shaped tools.
        temperature: 0 is greedy.
        max_tokens: Most tokens to sample.
        seed: Of this request's own random stream.
        session: Requests of one rollout attempt (and agent) share it: the exact ids
            of earlier turns are reused where the rendered text continues them.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    temperature: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    session: str = ""


@dataclass(frozen=True)
class ChatResult:
    """The policy's answer with its exact tokens.

    Attributes:
        prompt_ids: Token ids that the policy saw.
        response_ids: Token ids that it sampled, the end token included.
        logprobs: Natural log-probabilities under the sampling distribution, one
            per response token.
        content: Text outside tool calls, None if there is none.
        tool_calls: Parsed tool calls; text that does not parse stays in content.
        finish_reason: ``stop``, ``tool_calls`` or ``length``.
        model_version: Updates that the policy had had.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    content: str | None
    tool_calls: list[RequestedCall]
    finish_reason: str
    model_version: int


class Policy(ABC):
    """A model that answers chat completions. Safe to call from any event loop."""

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name under which the gateway offers the policy."""

    @abstractmethod
    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer one request.

        Raises:
            EngineError: The prompt does not fit the context, or generation failed.
        """

    @abstractmethod
    def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield pieces of the response's content as sampled, then the whole result.

        Tool calls are not content: they come with the result alone.
        """


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
        trained_tokens: Tokens with a non-zero mask.
        sequences: Merged sequences in the batch.
        skipped_groups: Groups without reward variance.
        ledger: For each rollout id, one entry per model call in order: ``trained``,
            or ``masked:<reason>`` or ``dropped:<reason>``.
    """

    step: int
    loss: float
    grad_norm: float
    entropy: float
    clip_fraction: float
    kl: float
    trained_tokens: int
    sequences: int
    skipped_groups: int
    ledger: dict[str, list[str]]


class Engine(ABC):
    """Updates a policy from trajectories. Knows no framework and no scenario."""

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy being trained; it always answers with the newest weights."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Updates done so far."""

    @abstractmethod
    def update(
        self,
        groups: Sequence[Sequence[Trajectory]],
        call_rewards: dict[str, list[float]],
        trainable: dict[str, bool],
    ) -> UpdateMetrics:
        """Do one on-policy update.

        Args:
            groups: Scored trajectories of the same task, group by group.
            call_rewards: Per rollout id, one reward per model call
                (``Scenario.broadcast_rewards``).
            trainable: Which components the loss covers.
        """

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

    @abstractmethod
    def close(self) -> None:
        """Stop generating and free memory; pending requests fail."""
