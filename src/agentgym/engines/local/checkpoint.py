"""Checkpoints of the local engine: weights, optimizer, random state, manifest.

The manifest is written last and holds a checksum of every other file, so a checkpoint
that was cut short or changed is recognised as such.
"""

import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from agentgym.core.files import sync_folder, write_json
from agentgym.engines.local.loading import LoadedModel
from agentgym.errors import CheckpointError

_FORMAT = 1
_MANIFEST = "engine.json"
_WEIGHTS = "weights.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save_checkpoint(
    folder: Path, loaded: LoadedModel, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Write everything that training changes into the existing ``folder``."""
    weights: dict[str, Tensor] = dict(loaded.trained_parameters())
    state = {"rng": torch.get_rng_state()}
    for name, parameter in weights.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{key}:{name}"] = value
    checksums = {}
    for name, tensors in ((_WEIGHTS, weights), (_OPTIMIZER, state)):
        data = save({key: t.detach().contiguous().cpu() for key, t in tensors.items()})
        checksums[name] = zlib.crc32(data)
        with (folder / name).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(folder)
    manifest = {
        "format": _FORMAT,
        "step": step,
        "model": _identity(loaded),
        "crc32": checksums,
    }
    write_json(folder / _MANIFEST, manifest)


def load_checkpoint(
    folder: Path, loaded: LoadedModel, optimizer: torch.optim.Optimizer
) -> int:
    """Restore what :func:`save_checkpoint` wrote; return the step.

    Nothing is changed unless all of it can be read.

    Raises:
        CheckpointError: A file is missing, cut short, changed, or of another model.
    """
    manifest = _read_manifest(folder / _MANIFEST)
    if manifest["model"] != _identity(loaded):
        raise CheckpointError(
            f"{folder / _MANIFEST} is of the model {manifest['model']}, and this run "
            f"trains {_identity(loaded)}. Resume with the settings it was started with."
        )
    weights = _read(folder / _WEIGHTS, manifest["crc32"])
    state = _read(folder / _OPTIMIZER, manifest["crc32"])
    for name, parameter in loaded.trained_parameters():
        parameter.data.copy_(weights[name])
        if f"step:{name}" in state:
            optimizer.state[parameter] = {
                key: state[f"{key}:{name}"].to(parameter.device) for key in _MOMENTS
            }
    torch.set_rng_state(state["rng"])
    return int(manifest["step"])


def _identity(loaded: LoadedModel) -> dict[str, Any]:
    """Return what a checkpoint's model must have in common with the loaded one."""
    shapes = [(name, list(p.shape)) for name, p in loaded.trained_parameters()]
    digest = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()
    return {
        "type": str(loaded.model.config.model_type),
        "adapter": loaded.adapter is not None,
        "shapes": digest[:16],
    }


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
