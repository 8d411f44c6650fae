"""Scripted servers of verl, as processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentgym.plugins.verl.engine import VerlClient
from agentgym.plugins.verl.protocol import KEY_VARIABLE

KEY = "a key"


class Server:
    """A scripted server that ends with its first client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        script = Path(__file__).with_name("scripted_server.py")
        words = [sys.executable, str(script), "--port", "0", "--once", str(folder)]
        self.process = subprocess.Popen(
            [*words, "--log", str(folder.with_suffix(".log"))],
            env={**os.environ, KEY_VARIABLE: KEY},
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while not (folder / "port").exists():
            assert self.process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        self.address = f"127.0.0.1:{(folder / 'port').read_text()}"

    def client(self, key: str = KEY) -> VerlClient:
        return VerlClient(self.address, key, busy_s=0.1)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Callable[[], Server]]:
    """Yield what starts a server."""
    made: list[Server] = []

    def start() -> Server:
        made.append(Server(tmp_path / f"server-{len(made)}"))
        return made[-1]

    yield start
    for server in made:
        server.end()
