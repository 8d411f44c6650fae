"""LocalServer: start and end verl's server on this machine, for one run."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp

from agentgym.errors import EngineError
from agentgym.plugins.verl.environment import ENVIRONMENT
from agentgym.plugins.verl.protocol import KEY_VARIABLE
from agentgym.security.log_file import LogFile
from agentgym.security.redaction import new_key

_STARTS_S = 60.0
_ENDS_S = 45.0
_TURN_S = 0.05
_PACKAGES, _HOME = "path", "home"
_SHORT = 30
"""Longest path of the temporary folder, in characters. Ray creates sockets several
folders below, and Linux allows 107 bytes for a socket's path."""


class RayProcess:
    """A process that starts Ray, in another virtual environment."""

    def __init__(self) -> None:
        self._folder = _ray_folder()

    def _start(
        self, words: Sequence[str], key: str, output: LogFile, **more: str
    ) -> None:
        """Start the process."""
        with output as self._output:
            self._process = subprocess.Popen(
                words,
                env=_ray_environment(self._folder, key) | more,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output.fileno(),
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
        rmtree(self._folder, ignore_errors=True)


class LocalServer(RayProcess):
    """A verl server on loopback; it ends when closed or when its client disconnects.

    Output of verl and Ray is appended to ``log``.

    Attributes:
        address: The server's address, ``host:port``.
    """

    def __init__(self, log: Path) -> None:
        python = ENVIRONMENT.interpreter()
        log.parent.mkdir(parents=True, exist_ok=True)
        super().__init__()
        self.log = log
        self.key = new_key()
        words = [str(python), "-m", "agentgym.plugins.verl.server", "--port", "0"]
        words += ["--once", str(self._folder), "--log", str(log.absolute())]
        self._start(words, self.key, LogFile(self._folder / "server.log"))
        try:
            self.address = f"127.0.0.1:{self._await(self._folder / 'port')}"
        except BaseException:
            self.close()
            raise

    def _await(self, port: Path) -> int:
        until = time.monotonic() + _STARTS_S
        while time.monotonic() < until:
            if port.exists():
                return int(port.read_text(encoding="utf-8"))
            if self._process.poll() is not None:
                self._output.wait()
                said = (
                    (self._folder / "server.log").read_bytes().decode(errors="replace")
                )
                raise EngineError(f"verl's server did not start: {said.strip()[-800:]}")
            time.sleep(_TURN_S)
        raise EngineError(
            f"verl's server did not start within {_STARTS_S:.0f} seconds."
        )


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


def _ray_environment(folder: Path, key: str) -> dict[str, str]:
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
        KEY_VARIABLE: key,
    }
