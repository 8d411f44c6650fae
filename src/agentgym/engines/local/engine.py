"""The local engine: the whole update, from rollouts to new weights, in one file."""

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from operator import add
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load, save
from torch import Tensor

from agentgym.core.config import TrainingConfig
from agentgym.core.files import sync_folder, write_json
from agentgym.core.ledger import NOT_FINITE
from agentgym.engines.base import (
    BETAS,
    CLIP,
    EPSILON,
    LEARNING_RATE,
    LORA_LEARNING_RATE,
    MAX_GRAD_NORM,
    Engine,
    TrainingBatch,
    UpdateMetrics,
    scheduled_rate,
)
from agentgym.engines.device import check_device
from agentgym.engines.local.imitation import LocalImitation
from agentgym.engines.local.loading import LoadedModel, load_model, quiet
from agentgym.engines.local.loss import LossSums, PolicyLoss
from agentgym.engines.local.policy import LocalPolicy
from agentgym.engines.local.prefix_tree import plant
from agentgym.errors import CheckpointError
from agentgym.models.folder import new_rank

_AFTER_WARM_START = 0.25
"""Of these rates, once calls were imitated. Full steps took that away: validation of
flight_booking fell from 51 to 39 %, and stayed with a quarter (docs/benchmarks.md)."""
_FORMAT = 1
_MANIFEST = "engine.json"
_WEIGHTS = "weights.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class LocalEngine(Engine):
    """Trains a policy in this process, on the CPU or one GPU; use :meth:`create`."""

    def __init__(self, config: TrainingConfig, loaded: LoadedModel) -> None:
        self._config = config
        self._loaded = loaded
        self._policy = LocalPolicy(loaded, deterministic=config.deterministic)
        self._step = 0
        default = LEARNING_RATE if loaded.adapter is None else LORA_LEARNING_RATE
        default *= _AFTER_WARM_START if config.warm_start else 1.0
        self._peak_rate = config.learning_rate or default
        self._parameters = [p for _, p in loaded.trained_parameters()]
        self._optimizer = torch.optim.AdamW(
            self._parameters,
            lr=self._peak_rate,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=0.0,
            fused=True,
        )
        self._loss = PolicyLoss(
            loaded, CLIP, config.entropy_coefficient, config.temperature
        )

    @classmethod
    def create(cls, config: TrainingConfig) -> Self:
        """Load the model and start to answer requests; see :class:`EngineFactory`."""
        device = check_device(config.gpu, deterministic=config.deterministic)
        rank = new_rank(config.model, config.lora_rank)
        return cls(
            config, load_model(config.model, device=device, rank=rank, seed=config.seed)
        )

    @property
    def policy(self) -> LocalPolicy:
        """The policy being trained."""
        return self._policy

    @property
    def step(self) -> int:
        """Updates done so far."""
        return self._step

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids that end a response."""
        return self._loaded.stop_ids

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """Return the text of each token of a response."""
        return self._policy.detokenizer.pieces(ids)

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update; running responses finish first.

        An update whose gradients are not finite is refused: the weights stay, and the
        loss is reported as it came.
        """
        decoder, threads = self._policy.decoder, torch.get_num_threads()
        with decoder.paused():
            torch.set_num_threads(self._loaded.threads[1])
            try:
                metrics = self._learn(batch)
            finally:
                torch.set_num_threads(threads)
            self._step = decoder.version = metrics.step
        return metrics

    def _learn(self, batch: TrainingBatch) -> UpdateMetrics:
        """Compute gradients, clip them, and take one step of AdamW."""
        total = batch.trained_tokens
        forests = plant(batch.sequences, self._loss.tree_nodes) if total else []

        self._optimizer.zero_grad(set_to_none=True)
        sums = LossSums()
        for forest in forests:
            sums = LossSums(*map(add, sums, self._loss.backward(forest, total)))
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRAD_NORM)
        refused, kl = "", 0.0
        if total and torch.isfinite(norm):
            for group in self._optimizer.param_groups:
                group["lr"] = scheduled_rate(self._config, self._peak_rate, self._step)
            self._optimizer.step()
            after = self._loss.measure(forests[0])
            kl = after.kl / after.tokens
        elif total:
            refused = NOT_FINITE
        self._optimizer.zero_grad(set_to_none=True)
        return UpdateMetrics(
            step=self._step + 1,
            loss=sums.loss / max(1, total),
            grad_norm=float(norm),
            entropy=sums.entropy / max(1, total),
            clip_fraction=sums.clipped / max(1, total),
            kl=kl,
            refused=refused,
        )

    def imitation(self) -> LocalImitation:
        """Return a teacher of the policy."""
        return LocalImitation(self._loaded, self._policy)

    def save_checkpoint(self, folder: Path) -> None:
        """Write weights (only the adapter's with LoRA), optimizer and random state.

        The manifest, which has the checksums of the other files, comes last: so one can
        tell a checkpoint that was cut short or changed.
        """
        weights: dict[str, Tensor] = dict(self._loaded.trained_parameters())
        state = {"rng": torch.get_rng_state()}
        for name, parameter in weights.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                state[f"{key}:{name}"] = value
        manifest = {
            "format": _FORMAT,
            "step": self._step,
            "model": self._identity(),
            "crc32": {
                _WEIGHTS: _write(folder / _WEIGHTS, weights),
                _OPTIMIZER: _write(folder / _OPTIMIZER, state),
            },
        }
        sync_folder(folder)
        write_json(folder / _MANIFEST, manifest)

    def load_checkpoint(self, folder: Path) -> None:
        """Continue from what was saved; nothing is changed unless all can be read."""
        manifest = _read_manifest(folder / _MANIFEST)
        if manifest["model"] != self._identity():
            raise CheckpointError(
                f"{folder / _MANIFEST} is of the model {manifest['model']}, and this "
                f"run trains {self._identity()}. Resume with the settings it was "
                "started with."
            )
        weights = _read(folder / _WEIGHTS, manifest["crc32"])
        state = _read(folder / _OPTIMIZER, manifest["crc32"])
        decoder = self._policy.decoder
        with decoder.paused():
            for name, parameter in self._loaded.trained_parameters():
                parameter.data.copy_(weights[name])
                if f"step:{name}" in state:
                    self._optimizer.state[parameter] = {
                        key: state[f"{key}:{name}"].to(parameter.device)
                        for key in _MOMENTS
                    }
            torch.set_rng_state(state["rng"])
            self._step = decoder.version = int(manifest["step"])

    def _identity(self) -> dict[str, Any]:
        """Return what a checkpoint's model must have in common with this one."""
        shapes = [(n, list(p.shape)) for n, p in self._loaded.trained_parameters()]
        digest = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()
        return {
            "type": str(self._loaded.model.config.model_type),
            "adapter": self._loaded.adapter is not None,
            "shapes": digest[:16],
        }

    def export(self, folder: Path) -> None:
        """Write model (or adapter) and tokenizer as transformers and peft read them.

        Weights keep the precision they were trained in: the exported policy answers as
        the evaluated one did.
        """
        with quiet():
            (self._loaded.adapter or self._loaded.model).save_pretrained(str(folder))
        self._loaded.tokenizer.save_pretrained(folder)

    def close(self) -> None:
        """Stop generating; pending requests fail."""
        self._policy.close()


def _write(path: Path, tensors: dict[str, Tensor]) -> int:
    """Write tensors durably; return the file's checksum."""
    data = save({name: t.detach().contiguous().cpu() for name, t in tensors.items()})
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return zlib.crc32(data)


def _read(path: Path, checksums: dict[str, int]) -> dict[str, Tensor]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None
    if zlib.crc32(data) != checksums.get(path.name):
        raise CheckpointError(
            f"{path} is corrupt: it has {len(data)} bytes and not the checksum that "
            f"{_MANIFEST} names. Remove the checkpoint {path.parent} to continue from "
            "the one before it."
        )
    return load(data)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        complete = {"format", "step", "model", "crc32"} <= set(manifest)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not complete or manifest["format"] != _FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of format {_FORMAT}.")
    return dict(manifest)
