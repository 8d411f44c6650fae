"""The watchdog, alone: it ends training and machines that nobody ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentgym.core.config import TrainingConfig
from agentgym.plugins.cloud.watchdog import EndLimits
from agentgym.version import __version__
from tests.plugins.cloud.home import make_sleepy

KEY = "planted-key-of-a-provider"


class Provider(BaseHTTPRequestHandler):
    """Notes what it is asked; refuses the first request, as providers do."""

    asked: list[tuple[str, str, str, str]]

    def do_DELETE(self) -> None:
        head = self.headers
        agent, key = head["User-Agent"], head["Authorization"]
        self.asked.append((self.command, self.path, key, agent))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def ending() -> Iterator[dict[str, str]]:
    """Yield the request that ends a machine, and a provider that takes it."""
    Provider.asked = []
    server = HTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v2/pods/abc"
    yield {"method": "DELETE", "url": url, "key": KEY, "body": ""}
    server.shutdown()
    server.server_close()


class Guarded:
    """A training that sleeps, with its watchdog."""

    def __init__(self, folder: Path, ending: dict[str, str] | None, **limits: Any):
        make_sleepy(folder)
        self.attempt = folder / "run" / "attempt-1"
        self.attempt.mkdir(parents=True)
        self.heartbeat = folder / "run" / "heartbeat"
        self.heartbeat.touch()
        config = TrainingConfig(
            scenario=str(folder / "sleepy"), output=folder / "run" / "runs", name="x"
        )
        train = {
            "folder": str(folder),
            "config": config.model_dump(mode="json"),
            "resume": False,
            "variables": {},
        }
        order = {
            "train": train,
            "ending": ending,
            "limits": asdict(EndLimits(**limits)),
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "agentgym.plugins.cloud.watchdog",
                str(self.attempt),
            ],
            stdin=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode())
        self.process.stdin.close()
        self.awake = folder / "awake"

    def child(self) -> psutil.Process:
        while not (found := psutil.Process(self.process.pid).children()):
            assert self.process.poll() is None
            time.sleep(0.05)
        return found[0]

    def wait_until_awake(self) -> psutil.Process:
        while not self.awake.exists():
            assert self.process.poll() is None
            time.sleep(0.05)
        return self.child()

    def wait_until_asked(self) -> None:
        """Wait for the request to the provider, and kill who repeats it for ever."""
        while not Provider.asked:
            time.sleep(0.05)
        self.process.kill()
        self.process.wait()

    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.attempt / "outcome.json").read_text())
        return found


@pytest.mark.slow
def test_an_idle_machine_ends_itself(tmp_path: Path, ending: dict[str, str]) -> None:
    guarded = Guarded(tmp_path, ending, idle_s=1.0)
    child = guarded.wait_until_awake()
    for process in (child, psutil.Process(guarded.process.pid)):
        assert KEY not in " ".join(process.cmdline())
        assert KEY not in str(process.environ())
    os.kill(child.pid, signal.SIGKILL)
    guarded.wait_until_asked()
    agent = f"agentgym/{__version__}"
    assert Provider.asked == [("DELETE", "/v2/pods/abc", f"Bearer {KEY}", agent)]
    assert guarded.outcome() == {"kind": "killed", "code": -signal.SIGKILL}
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(KEY.encode() in data for data in written)


@pytest.mark.slow
def test_money_ends_a_machine_that_waits_for_home(
    tmp_path: Path, ending: dict[str, str]
) -> None:
    """Home is gone and training has ended: what was set-up before it counts, too."""
    guarded = Guarded(tmp_path, ending, ends_s=3.0, idle_s=None, silent_s=None)
    os.kill(guarded.wait_until_awake().pid, signal.SIGKILL)
    guarded.wait_until_asked()
    assert Provider.asked[0][:2] == ("DELETE", "/v2/pods/abc")


@pytest.mark.slow
def test_training_that_does_not_heed_a_stop_is_killed(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, None, grace_s=0.5)
    child = guarded.wait_until_awake()
    child.suspend()
    (guarded.attempt / "stop").touch()
    guarded.process.wait(60)
    assert not child.is_running()
    assert guarded.outcome() == {"kind": "interrupted"}


@pytest.mark.slow
def test_without_its_watchdog_training_ends(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, None)
    child = guarded.wait_until_awake()
    guarded.process.kill()
    guarded.process.wait()
    child.wait(60)
    assert guarded.outcome() == {"kind": "interrupted"}


@pytest.mark.slow
def test_silence_of_the_client_ends_training(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, None, silent_s=3.0)
    guarded.process.wait(60)
    told = {"kind": "limit", "message": "the client was silent for 3 s"}
    assert guarded.outcome() == told
