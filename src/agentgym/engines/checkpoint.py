"""Write and read a learner's checkpoint: tensor files, and a manifest of checksums."""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from agentgym.core.files import parse_json, sync_folder, write_json
from agentgym.errors import CheckpointError

_FORMAT = 1
_MANIFEST = "engine.json"
_SUFFIX = ".safetensors"


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    *,
    step: int,
    model: Mapping[str, Any],
) -> None:
    """Write a checkpoint: one file for each set of tensors, then the manifest.

    Args:
        folder: An existing folder.
        tensors: For each file name, without suffix, its tensors by name.
        step: Number of updates done.
        model: Properties of the model; :func:`read_checkpoint` requires equal ones.
    """
    files = {f"{name}{_SUFFIX}": held for name, held in tensors.items()}
    manifest = {
        "format": _FORMAT,
        "step": step,
        "model": dict(model),
        "crc32": {name: _write(folder / name, held) for name, held in files.items()},
    }
    sync_folder(folder)
    write_json(folder / _MANIFEST, manifest)


def read_checkpoint(
    folder: Path, names: tuple[str, ...], model: Mapping[str, Any]
) -> tuple[int, list[dict[str, Tensor]]]:
    """Return a checkpoint's step, and the tensors of each file in ``names``.

    Args:
        folder: The checkpoint.
        names: File names without suffix.
        model: Expected properties of the model.

    Raises:
        CheckpointError: A file is missing, truncated, altered, or of another model.
    """
    manifest = _read_manifest(folder / _MANIFEST)
    if manifest["model"] != model:
        raise CheckpointError(
            f"{folder / _MANIFEST} is of the model {manifest['model']}, and this "
            f"run trains {model}. Resume with the settings it was started with."
        )
    checksums = manifest["crc32"]
    held = [_read(folder / f"{name}{_SUFFIX}", checksums) for name in names]
    return int(manifest["step"]), held


def _write(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write tensors to disk with fsync; return the file's CRC-32."""
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
        manifest = parse_json(path.read_text(encoding="utf-8"))
        complete = {"format", "step", "model", "crc32"} <= set(manifest)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not complete or manifest["format"] != _FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of format {_FORMAT}.")
    return dict(manifest)
