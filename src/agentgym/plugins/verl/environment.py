"""Define verl's virtual environment, and check that it works."""

import os
import subprocess
from pathlib import Path

from agentgym.engines.environments import (
    Build,
    Checked,
    EngineEnvironment,
    imports,
    machine,
)
from agentgym.errors import UsageError

# verl imports the last three packages without requiring them.
ENVIRONMENT = EngineEnvironment(
    engine="verl",
    called="verl",
    release=(0, 9),
    build=Build(
        "verl with vLLM",
        (
            "verl[vllm]>=0.9,<0.10",
            "transformers<5.11",
            "tensordict<0.11",
            "ray[default]>=2.60,<2.61",
            "cachetools",
            "fastapi",
            "uvicorn",
        ),
        gigabytes=30,
    ),
)


def check() -> list[Checked]:
    """Check the environment, the machine and the Ray cluster; do not start verl."""
    try:
        python = ENVIRONMENT.interpreter()
    except UsageError as error:
        return [Checked("environment", False, str(error))]
    found = ENVIRONMENT.packages(python, "verl", "ray", "torch", "vllm")
    found += [imports(python, "verl, ray, torch"), *machine()]
    if address := os.environ.get("RAY_ADDRESS"):
        found.append(_cluster(python, address))
    return found


def _cluster(python: Path, address: str) -> Checked:
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
        return Checked("Ray", False, f"RAY_ADDRESS = {address} does not answer")
    lines = (done.stdout if not done.returncode else done.stderr).strip().splitlines()
    return Checked("Ray", not done.returncode, f"{address}: {' '.join(lines[-1:])}")
