"""Detect the device for an engine's model by looking at /dev, without torch."""

import os
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from shutil import which

from agentgym.core.machines import elsewhere_hint
from agentgym.core.settings import initial_environment
from agentgym.errors import GPUNotAvailableError, UnsupportedError, UsageError

_MEMORY = Path("/proc/meminfo")
_PROCESSOR = Path("/proc/cpuinfo")
_HALF_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""Flags in /proc/cpuinfo for bfloat16 matrix products: two of x86, then one of Arm."""
_CONTAINER = Path("/sys/fs/cgroup")
_DRIVER_S = 20
_BFLOAT16 = 8.0
"""Lowest CUDA compute capability of GPUs that support bfloat16."""


def check_device(gpu: str, *, deterministic: bool = False) -> str:
    """Return ``cpu`` or ``cuda`` for the setting ``gpu``."""
    if gpu not in ("auto", "local", "none"):
        raise UnsupportedError(
            f"gpu = {gpu!r} would be a machine elsewhere, and here the engine runs "
            "where it is started: use auto, local or none. `agentgym train --gpu NAME` "
            "trains on a rented machine; `agentgym gpu list` has the names."
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
            "missing). Use --gpu none to train on the CPU, or --gpu auto. "
            f"{elsewhere_hint()}"
        )
    return "cpu"


def find_device(gpu: str) -> str:
    """Return ``cpu`` or ``cuda``; ``cpu`` if :func:`check_device` raises an error."""
    try:
        return check_device(gpu)
    except UsageError:
        return "cpu"


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@cache
def cpu_has_half() -> bool:
    """Return whether this machine's CPU multiplies matrices in bfloat16.

    On other CPUs torch converts each operand, which makes bfloat16 slower than float32.
    """
    with suppress(OSError):
        return bool(_HALF_FLAGS & set(_PROCESSOR.read_text(encoding="utf-8").split()))
    return False


def free_ram() -> int | None:
    """Return the free memory of this machine or container in bytes; None if unknown."""
    found = []
    with suppress(OSError, ValueError):
        found.append(1024 * _number(_MEMORY, "MemAvailable: *"))
    with suppress(OSError, ValueError):  # "max" in a container without a limit
        most = _number(_CONTAINER / "memory.max", "")
        used = _number(_CONTAINER / "memory.current", "")
        cached = _number(_CONTAINER / "memory.stat", "inactive_file ")
        found.append(most - used + cached)
    return min(found, default=None)


def _number(path: Path, label: str) -> int:
    found = re.search(rf"^{label}(\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} has no {label!r}")
    return int(found[1])


def free_gpu() -> tuple[int | None, bool]:
    """Return the first GPU's free memory in bytes, and whether it supports bfloat16."""
    if (tool := which("nvidia-smi")) is None:
        return None, False
    query = [
        tool,
        "--query-gpu=memory.free,compute_cap",
        "--format=csv,noheader,nounits",
    ]
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    with suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
        listed = subprocess.run(
            [*query, f"--id={first}"] if first else query,
            env=initial_environment(),
            capture_output=True,
            text=True,
            timeout=_DRIVER_S,
            check=True,
        )
        free, capability = listed.stdout.splitlines()[0].split(",")
        return int(free) * 2**20, float(capability) >= _BFLOAT16
    return None, False


def describe_device(device: str) -> str:
    """Return a device's description, e.g. ``CPU (4 cores)``."""
    if device == "cuda":
        return "one local GPU"
    cores = usable_cores()
    return f"CPU ({cores} core{'s' if cores > 1 else ''})"
