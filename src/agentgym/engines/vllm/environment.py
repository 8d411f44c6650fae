"""vLLM's own environment: where it is, and whether it works."""

from pathlib import Path

from agentgym.engines.environments import Checked, EngineEnvironment, imports, machine
from agentgym.errors import UsageError

SUPPORTED = (0, 32)
"""The release of vLLM whose flags and endpoints these are."""
ENVIRONMENT = EngineEnvironment(
    engine="vllm",
    called="vLLM",
    release=SUPPORTED,
    holds="vLLM with its torch",
    requirements=("vllm>=0.32,<0.33",),
    gigabytes=20,
)


def require_command() -> Path:
    """Return vLLM's command.

    Raises:
        UsageError: There is none, or its vLLM is of another release.
    """
    command = ENVIRONMENT.interpreter().with_name("vllm")
    if not command.exists():
        raise UsageError(
            f"{command} is missing, though vLLM is installed there. Remove "
            f"{command.parent.parent} and install it again. {ENVIRONMENT.advice}"
        )
    return command


def check() -> list[Checked]:
    """Look at the environment and the machine, and start nothing."""
    try:
        python = require_command().with_name("python")
    except UsageError as error:
        return [Checked("environment", False, str(error))]
    found = ENVIRONMENT.packages(python, "vllm", "torch", "transformers")
    return [*found, imports(python, "vllm, torch"), *machine()]
