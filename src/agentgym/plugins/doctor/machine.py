"""Check whether this machine can train; list missing and broken parts."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from agentgym.core.files import agents_folder, state_problem
from agentgym.errors import SandboxUnavailableError
from agentgym.install import install_command

_EXTRAS = {
    "local": ("torch", "transformers", "peft", "safetensors"),
    "langchain": ("langchain", "langgraph", "langchain_openai"),
    "autogen": ("autogen_agentchat", "autogen_ext"),
    "crewai": ("crewai",),
    "agent-framework": ("agent_framework", "agent_framework_openai"),
    "openai-agents": ("agents", "openai"),
    "pydantic-ai": ("pydantic_ai", "openai"),
    "llamaindex": ("llama_index.core", "llama_index.llms.openai"),
    "adk": ("google.adk",),
    "smolagents": ("smolagents", "openai"),
    "strands": ("strands", "openai"),
    "lightning": ("agentlightning",),
    "trl": ("trl",),
    "wandb": ("wandb",),
}
State = Literal["ok", "missing", "broken"]
"""State of a part of this machine: ``missing`` means that an optional part is not
installed, ``broken`` means that training is not possible."""
_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Check:
    """The result of a check; ``install`` is the command that adds a missing part."""

    name: str
    state: State
    detail: str
    install: str = ""


def check_machine() -> Iterator[Check]:
    """Check all that training needs on this machine, without loading torch."""
    from agentgym.sandbox.commands import SandboxConfig
    from agentgym.sandbox.ladder import choose_rung, described

    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("kernel", "ok", f"{platform.system()} {platform.release()}")
    flags: list[str] = []
    with suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    found = ", ".join(flag for flag in _CPU_FLAGS if flag in flags)
    cores = len(os.sched_getaffinity(0))
    yield Check("cpu", "ok", f"{cores} cores; {found or 'no AVX2, so slower'}")
    if driver := shutil.which("nvidia-smi"):
        yield Check("gpu", "ok", f"NVIDIA driver found ({driver})")
    else:
        yield Check("gpu", "missing", "no NVIDIA driver; the CPU is used")
    yield from (_extra(name, modules) for name, modules in _EXTRAS.items())
    try:
        rung = choose_rung(SandboxConfig())
        yield Check("sandbox", "ok", described(rung))
    except SandboxUnavailableError as error:
        yield Check("sandbox", "broken", str(error))
    problem = state_problem()
    folder = problem or str(agents_folder().parent)
    yield Check("AGENTGYM_HOME", "broken" if problem else "ok", folder)
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    disk = f"{free:.1f} GB free in {Path.cwd()}"
    if free < 1:
        yield Check("disk", "broken", f"{disk}; runs need at least 1 GB")
    else:
        yield Check("disk", "ok", disk)


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def _extra(name: str, modules: tuple[str, ...]) -> Check:
    absent = [module for module in modules if not _is_found(module)]
    if absent:
        state: State = "broken" if name == "local" else "missing"
        detail = f"without {', '.join(absent)}; the command below installs it"
        return Check(f"extra {name}", state, detail, install_command(name))
    distribution = modules[0].replace("_", "-")
    with suppress(PackageNotFoundError):
        distribution += f" {version(distribution)}"
    return Check(f"extra {name}", "ok", distribution)
