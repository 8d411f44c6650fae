"""Environments that engines have of their own: where they are, how they are made."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage, which
from typing import NamedTuple

from agentgym.core.files import agents_folder, require_writable_state
from agentgym.errors import EngineError, UsageError

_LEAST_MEMORY_GB = 4.0


class Checked(NamedTuple):
    """The result of one check: whether it is right, and its evidence."""

    name: str
    is_good: bool
    text: str


@dataclass(frozen=True)
class EngineEnvironment:
    """A virtual environment in ``AGENTGYM_HOME/engines``, made with uv.

    Attributes:
        engine: Whose it is, and the name of its main package.
        called: That package, as its authors write it.
        release: Of that package: the one whose interfaces are used.
        holds: Its largest packages, in words.
        requirements: Versions that resolve and run together, as pip takes them.
        gigabytes: Its approximate size on the disk.
    """

    engine: str
    called: str
    release: tuple[int, int]
    holds: str
    requirements: tuple[str, ...]
    gigabytes: int

    @property
    def folder(self) -> Path:
        """Where it is made."""
        return agents_folder().parent / "engines" / self.engine

    @property
    def python(self) -> Path:
        """Its interpreter, there or not."""
        return self.folder / "bin" / "python"

    @property
    def advice(self) -> str:
        """Return the command that installs this environment."""
        return f"Make it with: agentgym engine install {self.engine}"

    def interpreter(self) -> Path:
        """Return the interpreter that has the main package: its own, or this one.

        Raises:
            UsageError: There is none, or the package is of another release.
        """
        python = self.python
        if not python.exists():
            if find_spec(self.engine) is None:
                raise UsageError(
                    f"engine = {self.engine!r} needs an environment with "
                    f"{self.called}, and {self.folder} is none. {self.advice}"
                )
            python = Path(sys.executable)
        version = installed_version(python, self.engine)
        release = ".".join(map(str, self.release))
        if version is None or version.split(".")[:2] != release.split("."):
            raise UsageError(
                f"{self.called} {version or 'of no known version'} is in "
                f"{python.parent.parent}, and this works with {release}. {self.advice}"
            )
        return python

    def packages(self, python: Path, *names: str) -> list[Checked]:
        """Say which versions of packages an interpreter has."""
        versions = {name: installed_version(python, name) for name in names}
        return [
            Checked(name, version is not None, version or f"missing. {self.advice}")
            for name, version in versions.items()
        ]

    def install(self) -> Iterator[str]:
        """Make the environment with uv; yield a sentence on each step.

        Raises:
            UsageError: uv is missing, or the disk is too full.
            EngineError: uv failed.
        """
        require_writable_state()
        uv = which("uv")
        if uv is None:
            raise UsageError("uv is not installed: pip install uv")
        place = self.folder
        place.parent.mkdir(parents=True, exist_ok=True)
        free = disk_usage(place.parent).free / 2**30
        if free < self.gigabytes:
            raise UsageError(
                f"{place.parent} has {free:.0f} GB left, and {self.holds} takes about "
                f"{self.gigabytes}. Free some, or set AGENTGYM_HOME."
            )
        python, wanted = str(self.python), self.requirements
        steps = (
            [uv, "venv", "--quiet", "--allow-existing", "--python", "3.12", str(place)],
            [uv, "pip", "install", "--quiet", "--python", python, *wanted],
        )
        for words in steps:
            yield " ".join(words)
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise EngineError(f"uv failed: {done.stderr.strip()[-1500:]}")
        version = installed_version(self.python, self.engine)
        yield f"{self.engine} {version} is in {place}"


def installed_version(python: Path, package: str) -> str | None:
    """Return which version of a package an interpreter has, without starting it."""
    for path in python.parent.parent.glob(
        f"lib/python3*/site-packages/{package}-*.dist-info"
    ):
        return path.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return None


def imports(python: Path, modules: str, timeout_s: float = 180) -> Checked:
    """Say whether an interpreter can import ``modules``, and how many GPUs torch sees.

    Args:
        python: The interpreter.
        modules: Their names with commas, torch among them.
        timeout_s: How long that may take.
    """
    first = modules.partition(",")[0]
    probe = f"import {modules}; print(torch.cuda.device_count(), torch.version.cuda)"
    try:
        done = subprocess.run(
            [str(python), "-c", probe],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Checked("imports", False, f"{first} cannot be imported: {error}")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        found = f"{first} cannot be imported: {' '.join(last)}"
        return Checked("imports", False, found)
    count, cuda = done.stdout.split()[-2:]
    found = f"{modules}; torch, built for CUDA {cuda}, sees {count} GPUs"
    return Checked("imports", True, found)


def machine() -> list[Checked]:
    """Look at the GPUs, the memory, and whether servers may listen on loopback."""
    return [gpus(), _memory(), _ports()]


def _memory() -> Checked:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    found = f"{free:.0f} GB free; weights of servers that sleep are kept there"
    return Checked("memory", free >= _LEAST_MEMORY_GB, found)


def _ports() -> Checked:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    except OSError as error:
        return Checked("ports", False, f"no port of loopback is free: {error.strerror}")
    return Checked("ports", True, f"loopback has free ones, such as {port}")


def gpus() -> Checked:
    """Return the GPUs with their free memory, as the driver reports them."""
    if (tool := which("nvidia-smi")) is None:
        return Checked("GPUs", False, "nvidia-smi is missing: this machine has none")
    words = [tool, "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return Checked("GPUs", bool(lines), "; ".join(lines) or done.stderr.strip())
