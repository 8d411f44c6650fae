"""What the trainer asks of an engine."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym.core.ledger import Bucket
from agentgym.core.policy import Policy
from agentgym.core.trajectory import Trajectory


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
        ledger: For each rollout id the bucket of each model call, in order.
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
    ledger: dict[str, list[Bucket]]


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
