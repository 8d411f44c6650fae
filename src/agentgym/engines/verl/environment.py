"""verl's own environment: where it is, and whether it works."""

import os
import subprocess
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
from agentgym.engines.verl.protocol import is_supported
from agentgym.errors import UsageError

ENVIRONMENT = Environment(
    engine="verl",
    holds="verl with vLLM",
    requirements=(
        "verl[vllm]>=0.9,<0.10",
        "transformers<5.11",
        "tensordict<0.11",
        "ray[default]>=2.60,<2.61",
        "cachetools",
        "fastapi",
        "uvicorn",
    ),
    gigabytes=30,
)
"""verl imports the last three without asking for them."""


def require_environment() -> Path:
    """Return the interpreter that has verl.

    Raises:
        UsageError: There is none, or its verl is of another release.
    """
    python = ENVIRONMENT.python
    if not python.exists():
        if find_spec("verl") is None:
            raise UsageError(
                "engine = 'verl' needs an environment with verl, and "
                f"{ENVIRONMENT.folder} is none. {ENVIRONMENT.advice}"
            )
        python = Path(sys.executable)
    version = installed_version(python, "verl")
    if version is None or not is_supported(version):
        raise UsageError(
            f"verl {version or 'of no known version'} is in {python.parent.parent}, "
            f"and this works with 0.9. {ENVIRONMENT.advice}"
        )
    return python


def check() -> list[Finding]:
    """Look at the environment, the GPUs and the Ray cluster, and start nothing."""
    found = []
    try:
        python = require_environment()
    except UsageError as error:
        return [Finding("environment", False, str(error))]
    for package in ("verl", "ray", "torch", "vllm"):
        version = installed_version(python, package)
        told = version or f"not installed. {ENVIRONMENT.advice}"
        found.append(Finding(package, version is not None, told))
    found.append(imports(python, "verl, ray, torch"))
    found += machine()
    if address := os.environ.get("RAY_ADDRESS"):
        found.append(_cluster(python, address))
    return found


def _cluster(python: Path, address: str) -> Finding:
    words = f"import ray; ray.init({address!r}); print(ray.cluster_resources())"
    try:
        done = subprocess.run(
            [str(python), "-c", words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return Finding("Ray", False, f"RAY_ADDRESS = {address} does not answer")
    lines = (done.stdout if not done.returncode else done.stderr).strip().splitlines()
    return Finding("Ray", not done.returncode, f"{address}: {' '.join(lines[-1:])}")
