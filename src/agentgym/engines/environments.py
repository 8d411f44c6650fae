"""Find, check and install the separate virtual environments of engines."""

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
_IMPORTS_S = 180


class Checked(NamedTuple):
    """The result of one check: its name, whether it passed, and the details."""

    name: str
    is_good: bool
    text: str


@dataclass(frozen=True)
class Build:
    """The packages of an environment, and where to find them.

    Attributes:
        holds: Names of the largest packages, for messages.
        requirements: Requirements in pip's format that work together.
        gigabytes: Approximate size on the disk.
        pythons: Possible versions of Python, in order of preference. The first one for
            which all wheels are found is used.
        left_out: Dependencies that are not needed and so are not installed.
        backend: A value of ``uv --torch-backend``. If the configured indexes do not
            have all wheels, uv then also searches PyTorch's own index. Empty to search
            only the configured indexes.
        published_as: The main package's name on the package index, if it differs from
            the engine's name. The environment then gets metadata under both names.
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
        called: The main package's name in messages, as its authors write it.
        release: Supported release of the main package: major and minor version.
        build: Packages for machines with a GPU.
        cpu_build: Packages for machines without a GPU; None if the engine needs a GPU.
    """

    engine: str
    called: str
    release: tuple[int, int]
    build: Build
    cpu_build: Build | None = None

    @property
    def package(self) -> str:
        """The main package's name on the package index."""
        return self.called.lower()

    @property
    def folder(self) -> Path:
        """The environment's folder, whether or not it exists."""
        return agents_folder().parent / "engines" / self.engine

    @property
    def python(self) -> Path:
        """Path of the environment's interpreter, whether or not it exists."""
        return self.folder / "bin" / "python"

    @property
    def advice(self) -> str:
        """Advice for messages: the command that installs this environment."""
        without = " (without a GPU: --cpu)" if self.cpu_build else ""
        return f"Make it with: agentgym engine install {self.engine}{without}"

    def interpreter(self) -> Path:
        """Return the path of a Python interpreter that has the main package."""
        python = self.python
        if not python.exists():
            if find_spec(self.package) is None:
                raise UsageError(
                    f"engine = {self.engine!r} needs an environment with "
                    f"{self.called}, which {self.folder} does not hold. {self.advice}"
                )
            python = Path(sys.executable)
        version = installed_version(python, self.package)
        release = ".".join(map(str, self.release))
        if version is None or version.split(".")[:2] != release.split("."):
            raise UsageError(
                f"{self.called} {version or 'of no known version'} is in "
                f"{python.parent.parent}, and this works with {release}. {self.advice}"
            )
        return python

    def packages(self, python: Path, *names: str) -> list[Checked]:
        """Check which packages an interpreter has; return one result per name."""
        versions = {name: installed_version(python, name) for name in names}
        return [
            Checked(name, version is not None, version or f"missing. {self.advice}")
            for name, version in versions.items()
        ]

    def install(self, *, for_cpu: bool = False) -> Iterator[str]:
        """Install the environment with uv; yield a line before each step.

        Nothing is changed before uv has found every package. An environment that cannot
        be completed is removed. With ``for_cpu``, install the build for machines
        without a GPU.
        """
        build = self.cpu_build if for_cpu else self.build
        if build is None:
            raise UsageError(
                f"{self.called} needs a GPU, and has no build for CPUs: leave --cpu "
                "out."
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
        made = installed_version(self.python, self.package)
        yield f"{self.package} {made} is in {place}"


def _resolved(uv: str, build: Build, options: list[str]) -> tuple[str, list[str]]:
    """Find a Python version for which all packages have wheels; install nothing."""
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
    """Run uv with ``text`` as standard input; it also searches ``PIP_FIND_LINKS``."""
    links = os.environ.get("PIP_FIND_LINKS", "").split()
    environment = {"UV_FIND_LINKS": ",".join(links), **os.environ}
    return subprocess.run(
        words, env=environment, input=text, capture_output=True, text=True, check=False
    )


def _require(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise EngineError(f"uv failed: {_problem(done)}")


def _problem(done: subprocess.CompletedProcess[str]) -> str:
    """Return uv's reason for failing, in one line."""
    said = re.sub(r"\{[^}]*\}", "", " ".join(done.stderr.split()))  # markers
    match = re.search(r"Because (.*?), we can conclude", said)
    return match[1] if match else said[-_SAID:]


def _add_name(python: Path, published_as: str, name: str) -> None:
    """Add metadata of the package ``published_as`` under its usual name ``name``.

    Programs look up the version under the usual name.
    """
    version = installed_version(python, published_as.replace("-", "_"))
    suffix = published_as.removeprefix(name).strip("-")
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    folder = packages / f"{name}-{version}+{suffix}.dist-info"
    folder.mkdir()
    lines = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}+{suffix}")
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


def installed_version(python: Path, package: str) -> str | None:
    """Return the version of ``package`` that ``python`` has; None if not installed."""
    for path in python.parent.parent.glob(
        f"lib/python3*/site-packages/{package}-*.dist-info"
    ):
        return path.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return None


def imports(python: Path, modules: str) -> Checked:
    """Check that ``python`` can import modules; report how many GPUs torch finds."""
    first = modules.partition(",")[0]
    probe = f"import {modules}; print(torch.cuda.device_count(), torch.version.cuda)"
    try:
        done = subprocess.run(
            [str(python), "-c", probe],
            capture_output=True,
            text=True,
            check=False,
            timeout=_IMPORTS_S,
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
    """Check this machine's GPUs, memory, and whether 127.0.0.1 has a free port."""
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
    """Check that this machine has NVIDIA GPUs; report their names and memory."""
    if (tool := which("nvidia-smi")) is None:
        return Checked("GPUs", False, "nvidia-smi is missing: this machine has none")
    words = [tool, "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return Checked("GPUs", bool(lines), "; ".join(lines) or done.stderr.strip())
