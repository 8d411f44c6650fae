"""LocalServer: start verl's server on this machine for one run."""

import os
import subprocess
import time
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp

from agentgym.engines.verl.environment import ENVIRONMENT
from agentgym.engines.verl.protocol import KEY_VARIABLE
from agentgym.errors import EngineError
from agentgym.security.log_file import LogFile
from agentgym.security.redaction import new_key

_STARTS_S = 60.0
_ENDS_S = 45.0
_TURN_S = 0.05
_PACKAGES, _HOME = "path", "home"
_SHORT = 30
"""Longest folder name: Ray creates sockets far below, and their paths have at most 107
bytes."""


class LocalServer:
    """A verl server of this process, on loopback; it ends with its last client.

    Ray's files and its HOME are in a folder of this run, removed at the end.

    Args:
        log: File to append the output of verl and Ray to.
    """

    def __init__(self, log: Path) -> None:
        python = ENVIRONMENT.interpreter()
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.key = new_key()
        self._folder = ray_folder()
        port = self._folder / "port"
        words = [str(python), "-m", "agentgym.engines.verl.server", "--port", "0"]
        words += ["--once", str(self._folder), "--log", str(log.absolute())]
        with LogFile(self._folder / "server.log") as self._output:
            self._process = subprocess.Popen(
                words,
                env=ray_environment(self._folder, self.key),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=self._output.fileno(),
                stderr=self._output.fileno(),
                start_new_session=True,  # Ctrl-C is for us; we then end it
            )
        try:
            self.address = f"127.0.0.1:{self._await(port)}"
        except BaseException:
            self.close()
            raise

    def _await(self, port: Path) -> int:
        until = time.monotonic() + _STARTS_S
        while time.monotonic() < until:
            if port.exists():
                return int(port.read_text())
            if self._process.poll() is not None:
                self._output.wait()
                said = (self._folder / "server.log").read_text(errors="replace")
                raise EngineError(f"verl's server did not start: {said.strip()[-800:]}")
            time.sleep(_TURN_S)
        raise EngineError(
            f"verl's server did not start within {_STARTS_S:.0f} seconds."
        )

    def close(self) -> None:
        """End the server with all processes it started, and remove its files."""
        end_process(self._process, self._folder)


def end_process(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End a process that started Ray, and remove its folder of :func:`ray_folder`."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    rmtree(folder, ignore_errors=True)


def ray_folder() -> Path:
    """Create a folder for Ray's files, its HOME, and a path with this package."""
    folder = Path(mkdtemp(prefix="agv-", dir=_short_place()))
    packages = folder / _PACKAGES
    packages.mkdir()
    # The other environment gets only our package from this one.
    (packages / "agentgym").symlink_to(Path(__file__).parents[2])
    (folder / _HOME).mkdir()
    return folder


def ray_environment(folder: Path, key: str) -> dict[str, str]:
    """Return the variables of a process that starts Ray in another environment.

    Args:
        folder: The result of :func:`ray_folder`.
        key: The key that both sides know.
    """
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
        # Otherwise Ray replaces loopback by the machine's address, and all listen
        # on it.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1" if "RAY_ADDRESS" in given else "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "TOKENIZERS_PARALLELISM": "false",
        **kept,
        "HOME": str(folder / _HOME),
        "PYTHONPATH": os.pathsep.join(path),
        KEY_VARIABLE: key,
    }


def _short_place() -> str:
    place = gettempdir()
    return place if len(place) <= _SHORT else "/tmp"
