"""The watchdog, alone: it ends training and machines that nobody ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentgym.core.config import TrainingConfig
from agentgym.plugins.cloud import run_server
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

    def __init__(self, folder: Path, ending: dict[str, Any] | None = None, **more: Any):
        make_sleepy(folder)
        self.attempt = folder / "run" / "attempt-1"
        self.attempt.mkdir(parents=True)
        (folder / "run" / "heartbeat").touch()
        config = TrainingConfig(
            scenario=str(folder / "sleepy"), output=folder / "run" / "runs", name="x"
        )
        settings = config.model_dump(mode="json")
        train = {"folder": str(folder), "config": settings, "variables": {}}
        if ending is not None:
            ending = {**ending, "ends_s": None, "silent_s": 1000.0, **more}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                run_server.MODULE,
                str(folder / "run"),
                "watch",
                "1",
            ],
            stdin=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        order = {"train": train, "ending": ending}
        self.process.stdin.write(json.dumps(order).encode())
        self.process.stdin.close()
        self.awake = folder / "awake"

    def wait_until_awake(self) -> psutil.Process:
        while not self.awake.exists():
            assert self.process.poll() is None
            time.sleep(0.05)
        return psutil.Process(self.process.pid).children()[0]

    def wait_until_asked(self) -> None:
        """Wait for the request to the provider, and kill the process that sends it."""
        while not Provider.asked:
            time.sleep(0.05)
        self.process.kill()
        self.process.wait()

    def outcome(self) -> dict[str, Any]:
        while not (self.attempt / "outcome.json").exists():
            time.sleep(0.05)
        found: dict[str, Any] = json.loads((self.attempt / "outcome.json").read_text())
        return found


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"ends_s": 8.0}, {"silent_s": 8.0}], ids=str)
def test_a_machine_ends_itself_at_a_limit(
    tmp_path: Path, ending: dict[str, str], limits: dict[str, float]
) -> None:
    guarded = Guarded(tmp_path, ending, **limits)
    child = guarded.wait_until_awake()
    for process in (child, psutil.Process(guarded.process.pid)):
        assert KEY not in " ".join(process.cmdline())
        assert KEY not in str(process.environ())
    os.kill(child.pid, signal.SIGKILL)
    assert guarded.outcome()["kind"] == "killed"
    guarded.wait_until_asked()
    agent = f"agentgym/{__version__}"
    assert Provider.asked == [("DELETE", "/v2/pods/abc", f"Bearer {KEY}", agent)]
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(KEY.encode() in data for data in written)


@pytest.mark.slow
def test_a_machine_ends_itself_after_the_client_removed_the_run(
    tmp_path: Path, ending: dict[str, str]
) -> None:
    script = (
        "import sys; from pathlib import Path; "
        "from agentgym.plugins.cloud import run_server as r; "
        "r._PARTING_S = 0.1; order = {'train': {}, 'ending': %r}; "
        "r.Watchdog(Path(%r), order)._guard()"
    )
    order = {**ending, "ends_s": None, "silent_s": 1000.0}
    script = script % (order, str(tmp_path / "gone"))
    process = subprocess.Popen([sys.executable, "-c", script])
    while not Provider.asked:
        time.sleep(0.05)
    process.kill()
    process.wait()


@pytest.mark.slow
def test_training_that_ignores_a_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_server, "_GRACE_S", 0.5)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile True: time.sleep(1)"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    (tmp_path / "stop").touch()
    guard = run_server.Watchdog(tmp_path, {"train": {}, "ending": None})
    guard._watch(child)
    assert child.poll() is None
    child.kill()
    guard._conclude(child.wait())
    assert json.loads((tmp_path / "outcome.json").read_text())["kind"] == "interrupted"


@pytest.mark.slow
def test_without_its_watchdog_training_ends(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    child = guarded.wait_until_awake()
    guarded.process.kill()
    guarded.process.wait()
    child.wait(60)
    assert guarded.outcome() == {"kind": "interrupted", "message": ""}
