"""Whether this machine can train: what is there, what is missing, what is broken."""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from agentgym.core.files import agents_home, home_problem
from agentgym.errors import SandboxUnavailableError

_GIB = 2**30
_MINIMUM_FREE = 1 * _GIB
_EXTRAS = {
    "local": ("torch", "transformers", "peft", "safetensors"),
    "langchain": ("langchain", "langgraph", "langchain_openai"),
    "autogen": ("autogen_agentchat", "autogen_ext"),
    "crewai": ("crewai",),
    "wandb": ("wandb",),
}
_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        state: ``ok``, ``missing`` (optional) or ``broken`` (training cannot work).
        detail: What was found, and what to do.
    """

    name: str
    state: Literal["ok", "missing", "broken"]
    detail: str


def check_machine() -> list[Check]:
    """Look at everything that training needs; loads no model and no torch."""
    return [
        Check("python", "ok", f"{platform.python_version()} ({sys.executable})"),
        _cpu(),
        _gpu(),
        *(_extra(name, modules) for name, modules in _EXTRAS.items()),
        _sandbox(),
        _home(),
        _disk(Path.cwd()),
    ]


def _cpu() -> Check:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    found = [flag for flag in _CPU_FLAGS if flag in flags]
    cores = len(os.sched_getaffinity(0))
    detail = f"{cores} cores; {', '.join(found) or 'no AVX2, so slower'}"
    return Check("cpu", "ok", detail)


def _gpu() -> Check:
    path = shutil.which("nvidia-smi")
    if path is None:
        return Check("gpu", "missing", "no NVIDIA driver; the CPU is used")
    return Check("gpu", "ok", f"NVIDIA driver found ({path})")


def _extra(name: str, modules: tuple[str, ...]) -> Check:
    absent = [module for module in modules if find_spec(module) is None]
    if not absent:
        return Check(f"extra {name}", "ok", _version(modules[0]))
    state: Literal["missing", "broken"] = "broken" if name == "local" else "missing"
    advice = f'without {", ".join(absent)}; pip install "agentgym[{name}]"'
    return Check(f"extra {name}", state, advice)


def _version(module: str) -> str:
    distribution = module.replace("_", "-")
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return distribution


def _sandbox() -> Check:
    from agentgym.sandbox.config import SandboxConfig
    from agentgym.sandbox.ladder import choose_rung

    try:
        return Check("sandbox", "ok", choose_rung(SandboxConfig()).summary)
    except SandboxUnavailableError as error:
        return Check("sandbox", "broken", str(error))


def _home() -> Check:
    problem = home_problem()
    if problem is None:
        return Check("AGENTGYM_HOME", "ok", str(agents_home().parent))
    return Check("AGENTGYM_HOME", "broken", problem)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    detail = f"{free / _GIB:.1f} GB free in {folder}"
    if free < _MINIMUM_FREE:
        return Check("disk", "broken", f"{detail}; runs need at least 1 GB")
    return Check("disk", "ok", detail)
