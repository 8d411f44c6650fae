"""RayProcess: start and end a process that uses Ray; VerlDriver: send verl requests."""

import json
import os
import select
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import IO, Any

from agentgym.errors import EngineError
from agentgym.plugins.verl.settings import ENVIRONMENT
from agentgym.plugins.vllm.process import SupervisedProcess
from agentgym.plugins.vllm.settings import own_environment

_START, _STARTS_S = "start", 1800.0
_SHOWN_LINES = 12
# Longest path of the temporary folder, in characters. Ray creates sockets several
# folders below, and Linux allows 107 bytes for a socket's path.
_SHORT = 30


class RayProcess(SupervisedProcess):
    """A process that starts Ray, with a folder for Ray's files."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._folder = _ray_folder()

    def _start_module(
        self,
        python: Path,
        *words: str,
        variables: Mapping[str, str] | None = None,
        **given: Any,
    ) -> None:
        """Start the module ``words[0]``, with the other ``words`` as arguments."""
        command = [str(python), "-m", *words]
        environment = _ray_environment(self._folder) | dict(variables or {})
        self._start(command, environment, folder=self._folder, **given)

    def close(self) -> None:
        """End the process and all processes that it started; remove its files."""
        super().close()
        rmtree(self._folder, ignore_errors=True)


class VerlDriver(RayProcess):
    """verl's driver (``driver.py``)."""

    def __init__(self, log: Path) -> None:
        python = ENVIRONMENT.interpreter()
        super().__init__(log)
        self._asked = 0
        driver = "agentgym.plugins.verl.driver"
        self._start_module(python, driver, pipes=subprocess.PIPE)

    def start(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Start verl, and wait until its inference servers answer; return its state."""
        found: dict[str, Any] = self.ask(_START, settings=dict(settings))
        return found

    def ask(self, verb: str, **given: Any) -> Any:
        """Call a method of :class:`.cluster.Cluster`, e.g. ``update``."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        line, answer = b"", dict[str, Any]()
        self._asked += 1
        request = {"number": self._asked, "verb": verb, "given": given}
        with suppress(OSError):  # it has ended
            # An interrupted request may have left a line without an end.
            requests.write(b"\n" + json.dumps(request).encode() + b"\n")
            requests.flush()
            if verb == _START and not _is_ready(answers, _STARTS_S):
                raise EngineError(
                    f"verl has not started within {_STARTS_S / 60:.0f} minutes. "
                    f"Its log is {self.log}."
                )
            # The answer to a request that was interrupted may come first.
            while answer.get("number") != self._asked:
                line = answers.readline()
                if not line.endswith(b"\n"):
                    break
                answer = json.loads(line)
        if not line.endswith(b"\n"):
            lines = [line.strip() for line in self._log_text().splitlines()]
            said = " | ".join([*filter(None, lines)][-_SHOWN_LINES:])
            raise EngineError(f"verl has ended. Its log, {self.log}, ends: {said}")
        if "error" in answer:
            raise EngineError(
                f"verl has failed: {answer['error']}. Its log is {self.log}."
            )
        return answer["found"]


def _is_ready(pipe: IO[bytes], timeout_s: float) -> bool:
    """Wait until a pipe can be read, or has ended; return whether it can in time."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _ray_folder() -> Path:
    """Create a folder for Ray's files.

    Of the folders in it, ``home`` becomes Ray's HOME. ``path`` contains a link to the
    package ``agentgym`` and goes on PYTHONPATH.
    """
    usual = gettempdir()
    place = usual if len(usual) <= _SHORT else "/tmp"
    folder = Path(mkdtemp(prefix="agv-", dir=place))
    (folder / "home").mkdir()
    (folder / "path").mkdir()
    # Ray's environment can import only this one package of this environment.
    (folder / "path" / "agentgym").symlink_to(Path(__file__).parents[2])
    return folder


def _ray_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a process that starts Ray."""
    path = [str(folder / "path"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # With 1, the default on Linux, Ray replaces loopback by the machine's address, and
    # all its processes listen on that.
    is_cluster = "1" if "RAY_ADDRESS" in os.environ else "0"
    return {
        "XDG_CACHE_HOME": str(Path.home() / ".cache"),
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Under `uv run`, Ray would pack this folder with Ray's own files in it.
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": is_cluster,
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "TOKENIZERS_PARALLELISM": "false",
        **own_environment(os.environ),
        "HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join(path),
    }
