"""Refuses what the local engine cannot do, before torch or a model is loaded."""

import os
from importlib.util import find_spec
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.errors import (
    GPUNotAvailableError,
    MissingExtraError,
    UnsupportedError,
)
from agentgym.models.folder import NANO, describe_model, held_rank, model_source

DEFAULT_LORA_RANK = 16

_LIBRARIES = ("torch", "transformers", "peft", "safetensors")


class LocalEngines(EngineFactory):
    """Engines of torch in this process, on the CPU or one GPU."""

    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check a configuration without loading torch or a model.

        Raises:
            UnsupportedError: A setting, or a combination, that the engine does not do.
            GPUNotAvailableError: A GPU was asked for and none is there.
            ModelError: The model's folder is missing, or holds no usable model.
            MissingExtraError: torch, transformers, peft or safetensors is missing.
        """
        if any(find_spec(library) is None for library in _LIBRARIES):
            raise MissingExtraError("local", "Training in this process")
        device = check_device(config.gpu, deterministic=config.deterministic)
        if config.model == NANO and config.lora_rank:
            raise UnsupportedError(
                f"lora_rank = {config.lora_rank} with model = 'nano': nano is small "
                "and trains all its weights. Leave lora_rank unset, or choose another "
                "--model."
            )
        held = held_rank(Path(model_source(config.model)))
        if held and config.lora_rank not in (None, 0, held):
            raise UnsupportedError(
                f"lora_rank = {config.lora_rank} with model = {config.model!r}: that "
                f"folder holds an adapter of rank {held}, which is what is trained. "
                "Leave lora_rank unset, or give the adapter's base model."
            )
        model = describe_model(config.model, held or lora_rank(config))
        return EngineSummary(model, _words(device))

    def create(self, config: TrainingConfig) -> Engine:
        """Load the model and start to answer requests."""
        from agentgym.engines.local.engine import LocalEngine

        self.check(config)
        return LocalEngine.create(config)


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


def _words(device: str) -> str:
    if device == "cuda":
        return "one local GPU"
    cores = len(os.sched_getaffinity(0))
    return f"CPU ({cores} core{'s' if cores > 1 else ''})"
