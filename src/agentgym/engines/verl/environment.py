"""verl's own environment: where it is, how it is made, and whether it works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage, which
from typing import NamedTuple

from agentgym.core.files import agents_home, require_writable_home
from agentgym.engines.verl.protocol import is_supported
from agentgym.errors import EngineError, UsageError

REQUIREMENTS = (
    "verl[vllm]>=0.9,<0.10",
    "transformers<5.11",
    "tensordict<0.11",
    "ray[default]>=2.60,<2.61",
    "cachetools",
    "fastapi",
    "uvicorn",
)
"""What resolves and runs together; verl imports the last three without asking."""
_INSTALL = "Make it with: agentgym engine install verl"
_BYTES = 30 * 2**30
_PROBE = "import verl, ray, torch; print(torch.cuda.device_count())"


class Finding(NamedTuple):
    """One thing that was looked at: whether it is right, and what was seen."""

    name: str
    is_good: bool
    text: str


def folder() -> Path:
    """Return where the environment is made."""
    return agents_home().parent / "engines" / "verl"


def require_environment() -> Path:
    """Return the interpreter that has verl.

    Raises:
        UsageError: There is none, or its verl is of another release.
    """
    python = folder() / "bin" / "python"
    if not python.exists():
        if find_spec("verl") is None:
            raise UsageError(
                f"engine = 'verl' needs an environment with verl, and {folder()} is "
                f"none. {_INSTALL}"
            )
        python = Path(sys.executable)
    version = installed_version(python, "verl")
    if version is None or not is_supported(version):
        raise UsageError(
            f"verl {version or 'of no known version'} is in {python.parent.parent}, "
            f"and this works with 0.9. {_INSTALL}"
        )
    return python


def installed_version(python: Path, package: str) -> str | None:
    """Return which version of a package an interpreter has, without starting it."""
    for path in python.parent.parent.glob(
        f"lib/python3*/site-packages/{package}-*.dist-info"
    ):
        return path.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return None


def install() -> Iterator[str]:
    """Make the environment with uv, saying step by step what is done.

    Raises:
        UsageError: uv is missing, or the disk is too full.
        EngineError: uv failed.
    """
    require_writable_home()
    uv = which("uv")
    if uv is None:
        raise UsageError("uv is not installed: pip install uv")
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    free = disk_usage(place.parent).free
    if free < _BYTES:
        raise UsageError(
            f"{place.parent} has {free / 2**30:.0f} GB left, and verl with vLLM takes "
            f"about {_BYTES / 2**30:.0f}. Free some, or set AGENTGYM_HOME."
        )
    steps = (
        [uv, "venv", "--quiet", "--allow-existing", "--python", "3.12", str(place)],
        [uv, "pip", "install", "--quiet", "--python", str(place), *REQUIREMENTS],
    )
    for words in steps:
        yield " ".join(words)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineError(f"uv failed: {done.stderr.strip()[-1500:]}")
    version = installed_version(place / "bin" / "python", "verl")
    yield f"verl {version} is in {place}"


def check() -> list[Finding]:
    """Look at the environment, the GPUs and the Ray cluster, and start nothing."""
    found = []
    try:
        python = require_environment()
    except UsageError as error:
        return [Finding("environment", False, str(error))]
    for package in ("verl", "ray", "torch", "vllm"):
        version = installed_version(python, package)
        told = version or f"not installed. {_INSTALL}"
        found.append(Finding(package, version is not None, told))
    found.append(_imports(python))
    found.append(_gpus())
    if address := os.environ.get("RAY_ADDRESS"):
        found.append(_cluster(python, address))
    return found


def _imports(python: Path) -> Finding:
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    except subprocess.TimeoutExpired:
        return Finding("imports", False, "verl was not imported within 3 minutes")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        return Finding("imports", False, f"verl cannot be imported: {' '.join(last)}")
    count = done.stdout.split()[-1]
    return Finding("imports", True, f"verl, ray and torch; torch sees {count} GPUs")


def _gpus() -> Finding:
    if (tool := which("nvidia-smi")) is None:
        return Finding("GPUs", False, "nvidia-smi is missing: this machine has none")
    words = [tool, "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return Finding("GPUs", bool(lines), "; ".join(lines) or done.stderr.strip())


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
