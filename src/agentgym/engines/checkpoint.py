"""Write and read an engine's checkpoint: its manifest, and a learner's tensor files.

Importing this module does not import torch.
"""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.core.files import parse_json, sync_folder, write_json
from agentgym.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "engine.json"
_FORMAT = 1


def write_manifest(
    folder: Path, step: int, model: Mapping[str, Any], **more: Any
) -> None:
    """Write a checkpoint's manifest, the JSON file with its step, model and engine.

    Call this after the checkpoint's other files are written: it marks them as complete.
    ``model`` has the properties that :func:`check_model` compares later. ``more`` are
    further entries. One of them is ``engine``, the engine's name; only engines with a
    :class:`.Learner` (local and vllm) omit it.
    """
    sync_folder(folder)
    found = {"format": _FORMAT, "step": step, "model": dict(model), **more}
    write_json(folder / MANIFEST, found)


def read_manifest(folder: Path, *keys: str, engine: str = "") -> dict[str, Any]:
    """Return a checkpoint's manifest, after checking that it is complete."""
    path = folder / MANIFEST
    try:
        manifest = parse_json(path.read_text(encoding="utf-8"))
        complete = {"format", "step", "model", *keys} <= set(manifest)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. Remove the checkpoint {folder} to "
            "continue from the one before."
        ) from None
    is_own = complete and manifest.get("engine", "") == engine
    if not is_own or manifest["format"] != _FORMAT:
        name = engine or "local or vllm"
        raise CheckpointError(f"{path} is not a checkpoint of engine {name}.")
    return dict(manifest)


def check_model(folder: Path, manifest: dict[str, Any], model: dict[str, Any]) -> None:
    """Raise CheckpointError unless the manifest's model properties equal ``model``."""
    if manifest["model"] != model:
        raise CheckpointError(
            f"{folder / MANIFEST} is of the model {manifest['model']}, and this run "
            f"trains {model}. Resume with the settings it was started with."
        )


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> int:
    """Write tensors to disk with fsync; return the file's CRC-32."""
    from safetensors.torch import save

    data = save({name: t.detach().contiguous().cpu() for name, t in tensors.items()})
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return zlib.crc32(data)


def read_tensors(path: Path, checksums: Mapping[str, int]) -> "dict[str, Tensor]":
    """Return a file's tensors; raise CheckpointError if the file is corrupt."""
    from safetensors.torch import load

    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None
    if zlib.crc32(data) != checksums.get(path.name):
        raise CheckpointError(
            f"{path} is corrupt: it has {len(data)} bytes and not the checksum that "
            f"{MANIFEST} names. Remove the checkpoint {path.parent} to continue from "
            "the one before it."
        )
    return load(data)
