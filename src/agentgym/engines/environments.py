"""Environments that engines have of their own: where they are, how they are made."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage, rmtree, which
from tempfile import TemporaryDirectory
from typing import NamedTuple

from agentgym.core.files import agents_folder, require_writable_state
from agentgym.engines.device import describe_device
from agentgym.errors import EngineError, UsageError

_LEAST_MEMORY_GB = 4.0
_SAID = 1500


class Checked(NamedTuple):
    """The result of one check: whether it is right, and its evidence."""

    name: str
    is_good: bool
    text: str


@dataclass(frozen=True)
class Build:
    """The packages of an environment, and how they are found.

    Attributes:
        holds: Its largest packages, in words.
        requirements: Versions that resolve and run together, as pip takes them.
        gigabytes: Its approximate size on the disk.
        pythons: Versions of Python that it may have; the first with all wheels is
            taken.
        left_out: Packages that the requirements ask for and do not need.
        backend: PyTorch's own index (``uv --torch-backend``) that is asked for wheels
            which the usual indexes do not have; empty for none.
        published_as: The main package's name on the index, where that is another; the
            environment then also gets the usual name.
    """

    holds: str
    requirements: tuple[str, ...]
    gigabytes: int
    pythons: tuple[str, ...] = ("3.12",)
    left_out: tuple[str, ...] = ()
    backend: str = ""
    published_as: str = ""


@dataclass(frozen=True)
class EngineEnvironment:
    """A virtual environment in ``AGENTGYM_HOME/engines``, made with uv.

    Attributes:
        engine: Whose it is, and the name of its main package.
        called: That package, as its authors write it.
        release: Of that package: the one whose interfaces are used.
        build: Its packages.
        cpu_build: Those for machines without a GPU; None if it needs one.
    """

    engine: str
    called: str
    release: tuple[int, int]
    build: Build
    cpu_build: Build | None = None

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
        without = " (without a GPU: --cpu)" if self.cpu_build else ""
        return f"Make it with: agentgym engine install {self.engine}{without}"

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

    def install(self, *, for_cpu: bool = False) -> Iterator[str]:
        """Make the environment with uv; yield a sentence on each step.

        Nothing is touched before uv has found every package. An environment that could
        not be completed is removed.

        Args:
            for_cpu: Take the build for machines without a GPU.

        Raises:
            UsageError: uv is missing, the disk is too full, or the engine has no build
                for CPUs.
            EngineError: uv failed; says why.
        """
        build = self.cpu_build if for_cpu else self.build
        if build is None:
            raise UsageError(
                f"{self.called} needs a GPU: --cpu is an option of vllm alone. Leave "
                "it out."
            )
        require_writable_state()
        uv = which("uv") or os.environ.get("UV")  # which `uv run` sets
        if uv is None:
            raise UsageError("uv is not installed: pip install uv")
        place = self.folder
        place.parent.mkdir(parents=True, exist_ok=True)
        free = disk_usage(place.parent).free / 2**30
        if free < build.gigabytes:
            raise UsageError(
                f"{place.parent} has {free:.0f} GB left, and {build.holds} takes about "
                f"{build.gigabytes}. Free some, or set AGENTGYM_HOME."
            )
        with TemporaryDirectory(prefix="agentgym-install-") as folder:
            options: list[str] = []
            if build.left_out:
                names = Path(folder, "left-out.txt")
                names.write_text("\n".join(build.left_out))
                options = ["--excludes", str(names)]
            yield f"looking for {' '.join(build.requirements)}"
            version, found = _resolved(uv, build, options)
            venv = [uv, "venv", "--quiet", "--clear", "--python", version, str(place)]
            pip = [uv, "pip", "install", "--quiet", "--python", str(self.python)]
            yield " ".join(venv)
            _require(_run(venv))
            try:
                pip += [*found, *build.requirements]
                yield " ".join(pip)
                _require(_run(pip))
                if build.published_as:
                    _add_name(self.python, build.published_as, self.engine)
            except BaseException:
                rmtree(place, ignore_errors=True)
                raise
        made = installed_version(self.python, self.engine)
        yield f"{self.engine} {made} is in {place}"


def _resolved(uv: str, build: Build, options: list[str]) -> tuple[str, list[str]]:
    """Return the Python that has all wheels of a build, and uv's options for them.

    Nothing is installed.

    Raises:
        EngineError: Some cannot be found; says which and what to do.
    """
    tries = [(version, options) for version in build.pythons]
    if build.backend:
        more = [*options, "--torch-backend", build.backend]
        tries += [(version, more) for version in build.pythons[:1]]
    problems = []
    for version, words in tries:
        compiled = [uv, "pip", "compile", "-", "--quiet", "--python-version", version]
        done = _run([*compiled, *words], "\n".join(build.requirements))
        if not done.returncode:
            return version, words
        problems.append(_problem(done))
    wanted, pythons = " ".join(build.requirements), " or ".join(build.pythons)
    advice = "Look at the connection to the package index, and try again."
    if build.backend:
        advice = (
            "Let uv reach PyTorch's own index, or set UV_FIND_LINKS to a folder or "
            f"page that has torch's wheel for Python {pythons}."
        )
    raise EngineError(
        f"uv failed: it finds no wheels for {wanted} and Python {pythons}. {advice} "
        f"Nothing was changed. It said: {'; then: '.join(dict.fromkeys(problems))}"
    )


def _run(
    words: Sequence[str], text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run uv, which also looks where pip is set to look for wheels."""
    links = os.environ.get("PIP_FIND_LINKS", "").split()
    environment = {"UV_FIND_LINKS": ",".join(links), **os.environ}
    return subprocess.run(
        words, env=environment, input=text, capture_output=True, text=True, check=False
    )


def _require(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise EngineError(f"uv failed: {_problem(done)}")


def _problem(done: subprocess.CompletedProcess[str]) -> str:
    """Return why uv failed, in one line."""
    said = re.sub(r"\{[^}]*\}", "", " ".join(done.stderr.split()))  # markers
    match = re.search(r"Because (.*?), we can conclude", said)
    return match[1] if match else said[-_SAID:]


def _add_name(python: Path, published_as: str, name: str) -> None:
    """Give a package that is published under another name its usual one, too.

    Programs that ask for its version by the usual name end without it.
    """
    version = installed_version(python, published_as.replace("-", "_"))
    suffix = published_as.removeprefix(name).strip("-")
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    folder = packages / f"{name}-{version}+{suffix}.dist-info"
    folder.mkdir()
    lines = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}+{suffix}")
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


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
    built = "CPUs" if cuda == "None" else f"CUDA {cuda}"
    found = f"{modules}; torch, built for {built}, sees {count} GPUs"
    return Checked("imports", True, found)


def machine(*, for_cpu: bool = False) -> list[Checked]:
    """Look at the GPUs, the memory, and whether servers may listen on loopback.

    Args:
        for_cpu: Look at the CPU, and not for GPUs.
    """
    use = "weights of servers that sleep are kept there"
    if for_cpu:
        cpu = f"{describe_device('cpu')}: it computes there, with or without a GPU"
        use = f"it takes {_LEAST_MEMORY_GB:.0f} GB or more"
        return [Checked("device", True, cpu), _memory(use), _ports()]
    return [gpus(), _memory(use), _ports()]


def _memory(use: str) -> Checked:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    found = f"{free:.0f} GB free; {use}"
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
