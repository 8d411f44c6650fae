"""Learner: updates weights from batches, for engines that learn in this process."""

import hashlib
import json
from collections.abc import Sequence
from itertools import chain
from operator import add
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.files import write_json
from agentgym.core.ledger import FAR_OFF, NOT_FINITE
from agentgym.core.trajectory import ModelCall
from agentgym.engines.adapter import names_of
from agentgym.engines.base import (
    BETAS,
    EPSILON,
    LARGE_EPSILON,
    MAX_GRAD_NORM,
    Allowed,
    Engine,
    TrainingBatch,
    UpdateMetrics,
    check_gap,
    scheduled_rate,
    sized_by_kl,
    usual_rates,
)
from agentgym.engines.checkpoint import (
    check_model,
    read_manifest,
    read_tensors,
    write_manifest,
    write_tensors,
)
from agentgym.engines.credit import clip_range
from agentgym.engines.local.decoding.threads import kernel_threads
from agentgym.engines.local.loss import LossSums, PolicyLoss, Ratios, ReferencePolicy
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.quiet import quiet
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.models.folder import ROLES_FILE, SMALL_PARAMETERS

_WEIGHTS, _OPTIMIZER = "weights.safetensors", "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Learner:
    """Updates a model with the clipped policy loss and AdamW; writes checkpoints.

    The model must not sample during an update.

    Args:
        config: All settings of the run.
        loaded: The model, which is trained in place.
        servers: Name of the servers that sample, e.g. ``vLLM``; empty if this process
            samples. An update raises an error if the servers' log-probabilities differ
            too much from the model's.

    Attributes:
        step: Number of updates so far.
        is_warmed: Whether the model had a warm start (supervised fine-tuning before
            the first update). The default learning rate of a small model without an
            adapter is then lower.
    """

    def __init__(
        self, config: TrainingConfig, loaded: LoadedModel, servers: str = ""
    ) -> None:
        self.step = 0
        self._config = config
        self._loaded = loaded
        self._servers = servers
        self.is_warmed = config.warm_start
        is_small = loaded.model.num_parameters() < SMALL_PARAMETERS
        self._kind = {"has_adapter": loaded.adapter is not None, "is_small": is_small}
        self._is_sized_by_kl = not is_small and config.learning_rate is None
        self._scale = 1.0  # of the rate, if it follows the updates' KL divergence
        self._parameters = [p for _, p in loaded.trained_parameters()]
        self._optimizer = torch.optim.AdamW(
            self._parameters,
            lr=self._peak_rate,
            betas=BETAS,
            eps=EPSILON if is_small else LARGE_EPSILON,
            weight_decay=0.0,
            fused=True,
        )
        self._loss = PolicyLoss(
            loaded,
            clip_range(config.algorithm),
            config.entropy_coefficient,
            config.temperature,
            config.ratio_limit,
            ReferencePolicy(loaded, config.kl_coefficient)
            if config.kl_coefficient
            else None,
        )

    @property
    def _peak_rate(self) -> float:
        usual, _ = usual_rates(**self._kind, is_warmed=self.is_warmed)
        return self._config.learning_rate or usual

    def _rate(self, spent: float) -> float:
        """Return the learning rate of the next update."""
        if self._is_sized_by_kl:
            return self._scale * scheduled_rate(self._peak_rate, self.step, spent=0.0)
        return scheduled_rate(self._peak_rate, self.step, spent)

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update.

        The weights stay the same, and the metrics say why in ``refused``, if a gradient
        is not finite, or if every sequence's mean ratio is beyond ``ratio_limit``.
        """
        try:
            with kernel_threads(self._loaded.threads[1]):
                metrics = self._learn(batch)
        finally:
            self._optimizer.zero_grad(set_to_none=True)
        self.step = metrics.step
        return metrics

    def _learn(self, batch: TrainingBatch) -> UpdateMetrics:
        """Compute and clip gradients, and do one step of AdamW; return the metrics."""
        total = batch.trained_tokens
        forests = self._loss.plant(batch.sequences) if total else []

        self._optimizer.zero_grad(set_to_none=True)
        self._loss.take_ratios()  # of a failed update
        sums = LossSums()
        for forest in forests:
            sums = LossSums(*map(add, sums, self._loss.backward(forest, total)))
        gap = sums.gap / max(1, total)
        ratios = self._loss.take_ratios() or Ratios()
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRAD_NORM)
        if self._servers and torch.isfinite(norm):
            check_gap(gap, self._servers)
        p99, most, effective = ratios.statistics()
        refused, moved = "", dict[int, list[float]]()
        is_far = total and len(ratios.far_off) == len(batch.sequences)
        if is_far and torch.isfinite(norm):
            refused = FAR_OFF
        elif total and torch.isfinite(norm):
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate(batch.spent)
            self._optimizer.step()
            moved = self._loss.moved(forests[0])
        elif total:
            refused = NOT_FINITE
        kl = fmean(chain(*moved.values())) if moved else 0.0
        if self._is_sized_by_kl:
            self._scale = sized_by_kl(self._scale, kl, self.step)
        return UpdateMetrics(
            step=self.step + 1,
            loss=sums.loss / max(1, total),
            grad_norm=float(norm),
            entropy=sums.entropy / max(1, total),
            clip_fraction=sums.clipped / max(1, total),
            kl=kl,
            logprob_gap=gap,
            reference_kl=sums.away / max(1, total)
            if self._config.kl_coefficient
            else None,
            ratio_p99=p99,
            ratio_max=most,
            effective_share=effective,
            far_off=ratios.far_off,
            learned=[ratios.learned[id(s)] for s in batch.sequences],
            entropies=[ratios.entropies[id(s)] for s in batch.sequences],
            moved=[moved.get(id(s), ()) for s in batch.sequences],
            refused=refused,
        )

    @torch.no_grad()
    def compare(self, batch: TrainingBatch) -> float:
        """Return the KL divergence, in nats, from the policy that sampled a batch."""
        clip = clip_range(self._config.algorithm)
        loss = PolicyLoss(self._loaded, clip, 0.0, temperature=1.0)
        with kernel_threads(self._loaded.threads[1]):
            kl = sum(loss.total(forest).kl for forest in loss.plant(batch.sequences))
        return kl / batch.trained_tokens

    def save(self, folder: Path) -> None:
        """Write a checkpoint: trained weights, optimizer and random state."""
        weights: dict[str, Tensor] = dict(self._loaded.trained_parameters())
        state = {"rng": torch.get_rng_state()}
        for name, parameter in weights.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                state[f"{key}:{name}"] = value
        checksums = {
            name: write_tensors(folder / name, tensors)
            for name, tensors in ((_WEIGHTS, weights), (_OPTIMIZER, state))
        }
        more = {"crc32": checksums, "rate_scale": self._scale}
        write_manifest(folder, self.step, self._identity(), **more)

    def load(self, folder: Path) -> None:
        """Load a checkpoint; if a part of it cannot be read, change nothing."""
        manifest = read_manifest(folder, "crc32", "rate_scale")
        check_model(folder, manifest, self._identity())
        weights = read_tensors(folder / _WEIGHTS, manifest["crc32"])
        state = read_tensors(folder / _OPTIMIZER, manifest["crc32"])
        for name, parameter in self._loaded.trained_parameters():
            parameter.data.copy_(weights[name])
            if f"step:{name}" in state:
                self._optimizer.state[parameter] = {
                    key: state[f"{key}:{name}"].to(parameter.device) for key in _MOMENTS
                }
            else:
                self._optimizer.state.pop(parameter, None)
        torch.set_rng_state(state["rng"])
        self.step = int(manifest["step"])
        self._scale = float(manifest["rate_scale"])

    def _identity(self) -> dict[str, Any]:
        """Return properties of the model; a checkpoint to load must have the same."""
        shapes = [(n, list(p.shape)) for n, p in self._loaded.trained_parameters()]
        digest = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()
        return {
            "type": str(self._loaded.model.config.model_type),
            "adapter": self._loaded.adapter is not None,
            "shapes": digest[:16],
        } | ({"roles": list(self._loaded.roles)} if self._loaded.roles else {})

    def export(self, folder: Path) -> None:
        """Write the model (or only its adapters) and the tokenizer into ``folder``.

        Weights keep the precision that they had in training, so that the exported
        policy answers like the evaluated one.
        """
        self.write_weights(folder)
        self._loaded.tokenizer.save_pretrained(folder)

    def write_weights(self, folder: Path) -> None:
        """Write the model (or only its adapters) into ``folder``, without tokenizer."""
        with quiet():
            (self._loaded.adapter or self._loaded.model).save_pretrained(str(folder))
        if roles := self._loaded.roles:  # peft writes each adapter into its own folder
            names = dict(zip(roles, names_of(roles), strict=True))
            write_json(folder / ROLES_FILE, names)


class LearnerEngine(Engine):
    """An engine with a learner in this process."""

    def __init__(self, learner: Learner, tokens: ChatTokens) -> None:
        self._learner = learner
        self._tokens = tokens

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._learner.step

    def label(self, call: ModelCall) -> list[Components] | None:
        """Return each token's components (e.g. tool selection); None if unknown."""
        return self._tokens.label(call)

    def allowed(self, call: ModelCall) -> Sequence[Allowed] | None:
        """Return the tokens that a call's grammar allowed at each response position."""
        return self._tokens.allowed(call)

    def save_checkpoint(self, folder: Path) -> None:
        """Write a checkpoint: trained weights, optimizer and random state."""
        self._learner.save(folder)

    def export(self, folder: Path) -> None:
        """Write the model (or only its adapters) and the tokenizer into ``folder``."""
        self._learner.export(folder)
