"""Where an engine's model runs, told by a look at /dev, without torch."""

import os
from pathlib import Path

from agentgym.errors import GPUNotAvailableError, UnsupportedError


def check_device(gpu: str, *, deterministic: bool = False) -> str:
    """Return ``cpu`` or ``cuda`` for the setting ``gpu``.

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


def describe_device(device: str) -> str:
    """Return a device in words, e.g. ``CPU (4 cores)``."""
    if device == "cuda":
        return "one local GPU"
    cores = len(os.sched_getaffinity(0))
    return f"CPU ({cores} core{'s' if cores > 1 else ''})"
