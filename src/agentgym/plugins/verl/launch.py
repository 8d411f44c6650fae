"""VerlDriver: start and end the process that controls verl, and send it requests."""

import json
import os
import select
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import IO, Any

from agentgym.errors import EngineError
from agentgym.plugins.verl.environment import ENVIRONMENT
from agentgym.plugins.verl.protocol import PROTOCOL
from agentgym.security.files import LogFile

DRIVER = "agentgym.plugins.verl.driver"
_START, _STARTS_S = "start", 1800.0
_ENDS_S = 45.0
_SHOWN_LINES = 12
_PACKAGES, _HOME = "path", "home"
_SHORT = 30
"""Longest path of the temporary folder, in characters. Ray creates sockets several
folders below, and Linux allows 107 bytes for a socket's path."""


class RayProcess:
    """A process that starts Ray, in another virtual environment.

    Its output is appended to ``log``.
    """

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._begin = log.stat().st_size if log.exists() else 0
        self._folder = _ray_folder()

    def _log_lines(self) -> list[str]:
        """Wait for the end of the output; return its lines without empty ones."""
        self._output.wait()
        with self.log.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._begin)
            return [line.strip() for line in file if line.strip()]

    def _start(
        self,
        words: Sequence[str],
        output: LogFile,
        environment: Mapping[str, str],
        place: Path | None,
        pipes: int | None = None,
    ) -> None:
        """Start the process in the folder ``place``.

        ``pipes`` are its input and output, as in ``subprocess``. With None, its input
        is empty, and its output goes to ``output``.
        """
        with output as self._output:
            self._process = subprocess.Popen(
                words,
                env=environment,
                cwd=place,
                stdin=pipes or subprocess.DEVNULL,
                stdout=pipes or output.fileno(),
                stderr=output.fileno(),
                start_new_session=True,  # Ctrl-C is for us; we then end it
            )

    def close(self) -> None:
        """End the process and all processes that it started; remove its files."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        # Earlier, an unread request could block this.
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):
                pipe.close()
        rmtree(self._folder, ignore_errors=True)


class VerlDriver(RayProcess):
    """verl's driver (``driver.py``), which ends with this process or when closed.

    ``command`` starts it on another machine; None starts it on this one. Output of verl
    and Ray is appended to ``log``.
    """

    def __init__(self, log: Path, command: str | None = None) -> None:
        program = [str(ENVIRONMENT.interpreter())] if command is None else []
        super().__init__(log)
        self._asked = 0
        words, environment, place = shlex.split(command or ""), dict(os.environ), None
        if program:
            words = [*program, "-m", DRIVER, str(self._folder)]
            environment, place = ray_environment(self._folder), self._folder
        self._start(words, LogFile(log), environment, place, subprocess.PIPE)

    def start(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Start verl, and wait until its inference servers answer; return its state."""
        found: dict[str, Any] = self.ask(
            _START, protocol=PROTOCOL, settings=dict(settings)
        )
        return found

    def ask(self, verb: str, **given: Any) -> Any:
        """Call a method of :class:`.cluster.Cluster`, e.g. ``update``."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        line = b""
        answer: dict[str, Any] = {}
        self._asked += 1
        request = {"number": self._asked, "verb": verb, "given": given}
        with suppress(OSError):  # it has ended
            # An interrupted request may have left a line without an end.
            asked.write(b"\n" + json.dumps(request).encode() + b"\n")
            asked.flush()
            if verb == _START:
                self._await_first(answers)
            # The answer to a request that was interrupted may come first.
            while answer.get("number") != self._asked:
                line = answers.readline()
                if not line.endswith(b"\n"):
                    break
                answer = _read(line)
        if not line.endswith(b"\n"):
            said = " | ".join(self._log_lines()[-_SHOWN_LINES:])
            raise EngineError(f"verl has ended. Its log, {self.log}, ends: {said}")
        if "error" in answer:
            raise EngineError(
                f"verl has failed: {answer['error']}. Its log is {self.log}."
            )
        return answer["found"]

    def _await_first(self, answers: IO[bytes]) -> None:
        ready = select.poll()
        ready.register(answers, select.POLLIN)
        if not ready.poll(_STARTS_S * 1000):
            raise EngineError(
                f"verl has not started within {_STARTS_S / 60:.0f} minutes. "
                f"Its log is {self.log}."
            )


def _read(line: bytes) -> dict[str, Any]:
    """Return an answer; {} if a line is none, such as a greeting of a remote shell."""
    with suppress(ValueError):
        if isinstance(found := json.loads(line), dict):
            return found
    return {}


def _ray_folder() -> Path:
    """Create a folder for Ray's files, with two folders inside.

    One becomes Ray's HOME. The other contains a link to the package ``agentgym`` and
    goes on PYTHONPATH.
    """
    usual = gettempdir()
    place = usual if len(usual) <= _SHORT else "/tmp"
    folder = Path(mkdtemp(prefix="agv-", dir=place))
    packages = folder / _PACKAGES
    packages.mkdir()
    # Ray's environment can import only this one package of this environment.
    (packages / "agentgym").symlink_to(Path(__file__).parents[2])
    (folder / _HOME).mkdir()
    return folder


def ray_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a process that starts Ray."""
    given = dict(os.environ)
    ours = {"PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP"}
    kept = {name: value for name, value in given.items() if name not in ours}
    path = [str(folder / _PACKAGES), *filter(None, [given.get("PYTHONPATH")])]
    return {
        "XDG_CACHE_HOME": str(Path.home() / ".cache"),
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Under `uv run`, Ray would pack this folder with Ray's own files in it.
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        # With 1, the default on Linux, Ray replaces loopback by the machine's
        # address, and all its processes listen on that.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1" if "RAY_ADDRESS" in given else "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "TOKENIZERS_PARALLELISM": "false",
        **kept,
        "HOME": str(folder / _HOME),
        "PYTHONPATH": os.pathsep.join(path),
    }
