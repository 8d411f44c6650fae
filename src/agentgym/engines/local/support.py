"""Refuses what the local engine cannot do, before torch or a model is loaded."""

import json
import math
import os
import struct
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.errors import (
    GPUNotAvailableError,
    MissingExtraError,
    ModelError,
    UnsupportedError,
)

NANO = "nano"
DEFAULT_LORA_RANK = 16

_LIBRARIES = ("torch", "transformers", "peft", "safetensors")
ADAPTER_FILE = "adapter_config.json"


def check_supported(config: TrainingConfig) -> tuple[str, str]:
    """Check a configuration without loading torch or a model.

    Returns:
        The policy and the device, in words.

    Raises:
        UnsupportedError: A setting, or a combination, that the engine does not do.
        GPUNotAvailableError: A GPU was asked for and none is there.
        ModelError: The model's folder is missing, or holds no usable model.
        MissingExtraError: torch, transformers, peft or safetensors is missing.
    """
    if any(find_spec(library) is None for library in _LIBRARIES):
        raise MissingExtraError("local", "Training in this process")
    if config.engine != "local":
        raise UnsupportedError(
            f"engine = {config.engine!r} is not the local engine; use engine='local'."
        )
    device = check_device(config.gpu, deterministic=config.deterministic)
    if config.model == NANO and config.lora_rank:
        raise UnsupportedError(
            f"lora_rank = {config.lora_rank} with model = 'nano': nano is small and "
            "trains all its weights. Leave lora_rank unset, or choose another --model."
        )
    held = _held_rank(Path(model_source(config.model)))
    if held and config.lora_rank not in (None, 0, held):
        raise UnsupportedError(
            f"lora_rank = {config.lora_rank} with model = {config.model!r}: that "
            f"folder holds an adapter of rank {held}, which is what is trained. Leave "
            "lora_rank unset, or give the adapter's base model."
        )
    return describe_model(config.model, held or lora_rank(config)), _words(device)


def check_device(gpu: str, *, deterministic: bool = False) -> str:
    """Return ``cpu`` or ``cuda`` for the setting ``gpu``, by a look at /dev.

    Raises:
        UnsupportedError: A remote GPU, or a GPU in deterministic mode.
        GPUNotAvailableError: ``local``, and there is no NVIDIA GPU.
    """
    if gpu not in ("auto", "local", "none"):
        raise UnsupportedError(
            f"gpu = {gpu!r} needs a machine rented elsewhere; the local engine runs "
            "where it is started. Use --gpu auto, local or none."
        )
    if deterministic and gpu == "local":
        raise UnsupportedError(
            "deterministic = true with gpu = 'local': bit-for-bit repetition is "
            "supported on the CPU only. Use --gpu none, or leave deterministic out."
        )
    if gpu == "none" or deterministic:
        return "cpu"
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "cuda"
    if gpu == "local":
        raise GPUNotAvailableError(
            "gpu = 'local', and this machine has no NVIDIA GPU (/dev/nvidia0 is "
            "missing). Use --gpu none to train on the CPU, or --gpu auto."
        )
    return "cpu"


def lora_rank(config: TrainingConfig) -> int:
    """Return the rank of a new adapter to train.

    0 trains all weights, or the adapter that the model's folder holds.
    """
    if config.lora_rank is not None:
        return config.lora_rank
    return 0 if config.model == NANO else DEFAULT_LORA_RANK


def model_source(model: str) -> str:
    """Return the folder of ``nano`` or of a model folder, else the Hugging Face id.

    Raises:
        ModelError: It looks like a path, and nothing is there.
    """
    path = Path(str(files("agentgym"))) / "models" / NANO
    if model != NANO:
        path = Path(model).expanduser()
    names = ("config.json", ADAPTER_FILE)
    if any((path / name).is_file() for name in names):
        return str(path.resolve())
    if path.is_dir() and model != NANO:
        raise ModelError(
            f"The folder {path} holds no model: config.json is missing. Point --model "
            "at a folder written by save_pretrained, or use --model nano."
        )
    if model == NANO:
        raise ModelError(f"The policy 'nano' is missing from {path}; reinstall.")
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ModelError(f"No model is at {model!r}: the folder does not exist.")
    return model


def _held_rank(folder: Path) -> int:
    """Return the rank of the adapter in a model's folder; 0 if it holds none.

    Raises:
        ModelError: The adapter's settings cannot be read, or name no rank.
    """
    path = folder / ADAPTER_FILE
    if not path.is_file():
        return 0
    try:
        return int(json.loads(path.read_text())["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"The adapter settings {path} cannot be read as LoRA's: {error!r}."
        ) from None


def describe_model(model: str, rank: int) -> str:
    """Return the policy in words, e.g. ``nano (1.1M parameters, full weights)``.

    Raises:
        ModelError: The model's folder is missing, or has no chat template.
    """
    source = model_source(model)
    trained = f"LoRA rank {rank}" if rank else "full weights"
    folder = Path(source)
    if not folder.is_dir():
        return f"{model} ({trained})"
    if not _has_template(folder):
        raise ModelError(
            f"The model in {folder} has no chat template, so it cannot be given "
            "tools. Use an instruction-tuned model with a Hermes-style template "
            "(<tool_call>), such as the Qwen2.5 or Qwen3 families, or --model nano."
        )
    count = sum(_parameters(path) for path in folder.glob("*.safetensors"))
    if (folder / ADAPTER_FILE).is_file() or not count:
        return f"{model} ({trained})"
    return f"{model} ({_short(count)} parameters, {trained})"


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"The tokenizer in {folder} cannot be read: {error}") from None
    return bool(settings.get("chat_template"))


def _parameters(path: Path) -> int:
    """Return the number of parameters in a safetensors file, from its header."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(f"The weights {path} cannot be read: {error}") from None
    header.pop("__metadata__", None)
    return sum(math.prod(tensor["shape"]) for tensor in header.values())


def _short(count: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return str(count)


def _words(device: str) -> str:
    if device == "cuda":
        return "one local GPU"
    cores = len(os.sched_getaffinity(0))
    return f"CPU ({cores} core{'s' if cores > 1 else ''})"
