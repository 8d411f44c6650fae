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

_EXTRAS = {
    "local": ("torch", "transformers", "peft", "safetensors"),
    "langchain": ("langchain", "langgraph", "langchain_openai"),
    "autogen": ("autogen_agentchat", "autogen_ext"),
    "crewai": ("crewai",),
    "wandb": ("wandb",),
}
State = Literal["ok", "missing", "broken"]
"""What is missing is optional; where something is broken, training cannot work."""
_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what to do."""

    name: str
    state: State
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
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        flags = []
    found = ", ".join(flag for flag in _CPU_FLAGS if flag in flags)
    cores = len(os.sched_getaffinity(0))
    return Check("cpu", "ok", f"{cores} cores; {found or 'no AVX2, so slower'}")


def _gpu() -> Check:
    path = shutil.which("nvidia-smi")
    if path is None:
        return Check("gpu", "missing", "no NVIDIA driver; the CPU is used")
    return Check("gpu", "ok", f"NVIDIA driver found ({path})")


def _extra(name: str, modules: tuple[str, ...]) -> Check:
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        advice = f'without {", ".join(absent)}; pip install "agentgym[{name}]"'
        state: State = "broken" if name == "local" else "missing"
        return Check(f"extra {name}", state, advice)
    distribution = modules[0].replace("_", "-")
    try:
        found = f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        found = distribution
    return Check(f"extra {name}", "ok", found)


def _sandbox() -> Check:
    from agentgym.sandbox.config import SandboxConfig
    from agentgym.sandbox.ladder import choose_rung

    try:
        return Check("sandbox", "ok", choose_rung(SandboxConfig()).summary)
    except SandboxUnavailableError as error:
        return Check("sandbox", "broken", str(error))


def _home() -> Check:
    problem = home_problem()
    found = problem or str(agents_home().parent)
    return Check("AGENTGYM_HOME", "broken" if problem else "ok", found)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free / 2**30
    found = f"{free:.1f} GB free in {folder}"
    if free < 1:
        return Check("disk", "broken", f"{found}; runs need at least 1 GB")
    return Check("disk", "ok", found)
