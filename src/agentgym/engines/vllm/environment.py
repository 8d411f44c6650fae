"""vLLM's own environment: where it is, and whether it works."""

import sys
from importlib.util import find_spec
from pathlib import Path

from agentgym.engines.environments import (
    Environment,
    Finding,
    imports,
    installed_version,
    machine,
)
from agentgym.errors import UsageError

SUPPORTED = (0, 32)
"""The release of vLLM whose flags and endpoints these are."""
ENVIRONMENT = Environment(
    engine="vllm",
    holds="vLLM with its torch",
    requirements=("vllm>=0.32,<0.33",),
    gigabytes=20,
)


def require_environment() -> Path:
    """Return vLLM's command.

    Raises:
        UsageError: There is none, or its vLLM is of another release.
    """
    python = ENVIRONMENT.python
    if not python.exists():
        if find_spec("vllm") is None:
            raise UsageError(
                "engine = 'vllm' needs an environment with vLLM, and "
                f"{ENVIRONMENT.folder} is none. {ENVIRONMENT.advice}"
            )
        python = Path(sys.executable)
    version = installed_version(python, "vllm")
    if version is None or not _is_supported(version):
        raise UsageError(
            f"vLLM {version or 'of no known version'} is in {python.parent.parent}, "
            f"and this works with {'.'.join(map(str, SUPPORTED))}. {ENVIRONMENT.advice}"
        )
    command = python.with_name("vllm")
    if not command.exists():
        raise UsageError(
            f"{command} is missing, though vLLM {version} is installed there. Remove "
            f"{python.parent.parent} and make it anew. {ENVIRONMENT.advice}"
        )
    return command


def check() -> list[Finding]:
    """Look at the environment and the machine, and start nothing."""
    try:
        python = require_environment().with_name("python")
    except UsageError as error:
        return [Finding("environment", False, str(error))]
    found = []
    for package in ("vllm", "torch", "transformers"):
        version = installed_version(python, package)
        told = version or f"not installed. {ENVIRONMENT.advice}"
        found.append(Finding(package, version is not None, told))
    return [*found, imports(python, "vllm, torch"), *machine()]


def _is_supported(version: str) -> bool:
    return tuple(version.split(".")[:2]) == tuple(map(str, SUPPORTED))
