"""LocalEngine: policy and learner share one model in this process."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import TrainingBatch, UpdateMetrics
from agentgym.engines.device import check_device
from agentgym.engines.learner import Learner, LearnerEngine
from agentgym.engines.local.decoding.threads import in_short_thread
from agentgym.engines.local.imitation import LocalImitation
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.policy import LocalPolicy
from agentgym.engines.memory import roomy_use
from agentgym.engines.settings import adapted_roles
from agentgym.models.folder import new_rank


class LocalEngine(LearnerEngine):
    """Trains a policy in this process, on the CPU or one GPU."""

    compares: ClassVar[bool] = True

    def __init__(self, config: TrainingConfig, loaded: LoadedModel) -> None:
        self._config = config
        self._loaded = loaded
        self._policy = LocalPolicy(loaded, deterministic=config.deterministic)
        self._policy.tokens.check_ends(imitates=config.warm_start)
        super().__init__(Learner(config, loaded), self._policy.tokens)

    @classmethod
    def create(cls, config: TrainingConfig) -> Self:
        """Load the model, and start to answer requests."""
        return in_short_thread(cls._create, config)

    @classmethod
    def _create(cls, config: TrainingConfig) -> Self:
        device = check_device(config.gpu, deterministic=config.deterministic)
        rank = new_rank(config.model, config.lora_rank)
        nodes, kept = roomy_use(config, device)  # while the memory is free
        is_exact = config.deterministic and config.precision == "auto"
        loaded = load_model(
            config.model,
            device=device,
            rank=rank,
            seed=config.seed,
            precision="float32" if is_exact else config.precision,
            recompute=config.gradient_checkpointing,
            template=config.template,
            roles=adapted_roles(config),
        )
        return cls(config, replace(loaded, tree_nodes=nodes, kept_tokens=kept))

    @property
    def policy(self) -> LocalPolicy:
        """The policy that is being trained."""
        return self._policy

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update; running responses finish first."""
        decoder = self._policy.decoder

        def update() -> UpdateMetrics:
            metrics = self._learner.update(batch)
            decoder.version = metrics.step
            return metrics

        return decoder.between_responses(update)

    def compare(self, batch: TrainingBatch) -> float:
        """Return the KL divergence, in nats, from the policy that sampled a batch."""
        decoder = self._policy.decoder
        return decoder.between_responses(partial(self._learner.compare, batch))

    def imitation(self) -> LocalImitation:
        """Return the warm start's trainer; later updates use a lower learning rate."""

        def alone(work: Callable[[], float]) -> float:
            self._learner.is_warmed = True
            return self._policy.decoder.between_responses(work)

        return LocalImitation(self._loaded, self._tokens, alone)

    def load_checkpoint(self, folder: Path) -> None:
        """Load a checkpoint; if a part of it cannot be read, change nothing."""
        decoder = self._policy.decoder

        def load() -> None:
            self._learner.load(folder)
            decoder.version = self._learner.step

        decoder.between_responses(load)

    def close(self) -> None:
        """Stop sampling; pending requests fail."""
        self._policy.close()
