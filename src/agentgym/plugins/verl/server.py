"""HTTP server that runs verl for a client, which may be on another machine.

::

    AGENTGYM_ENGINE_KEY=… python -m agentgym.plugins.verl.server --host 0.0.0.0

Clients must give the key. The server takes little memory until a client starts verl
with the request ``/start``. The response to this request stays open. When the client
disconnects, verl ends with all its processes.
"""

import argparse
import hmac
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.plugins.verl.protocol import KEY_VARIABLE, PROTOCOL, row_problem
from agentgym.plugins.vllm.supervise import adopt_orphans, end_descendants
from agentgym.security.log_file import LogFile

BEAT_S = 2.0
_VERBS = frozenset(
    {"update", "imitate", "measure", "refresh", "save", "load", "export"}
)
_UNUSED_S = 120.0
_ENDING_S = 25.0
_MOST_BYTES = 2**31
_SHOWN_LINES = 12
_LAST_WORDS_S = 1.0
DRIVER = (sys.executable, "-m", "agentgym.plugins.verl.driver")
"""Command that starts the driver, the process that controls verl."""


class Refused(Exception):
    """An error to send to the client instead of an answer, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Driver:
    """The process that controls verl (``driver.py``), with all its descendants."""

    def __init__(self, log: Path, command: Sequence[str]) -> None:
        self._log = log
        self._lock = threading.Lock()
        with LogFile(log) as self._output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output.fileno(),
                text=True,
                start_new_session=True,
            )

    def ask(self, verb: str, given: dict[str, Any]) -> Any:
        """Send a request to the process and return its answer, or raise Refused."""
        if not self._lock.acquire(blocking=False):
            raise Refused(503, "another request is still being answered")
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps({"verb": verb, "given": given}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            answer = json.loads(line) if line else None
        except OSError:
            answer = None
        finally:
            self._lock.release()
        if answer is None:
            with suppress(subprocess.TimeoutExpired):  # it closes its output first
                self._process.wait(_LAST_WORDS_S)
            raise Refused(502, f"verl's driver has ended. {self.last_words()}")
        if "error" in answer:
            raise Refused(500, answer["error"])
        return answer["found"]

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """Return the end of the driver's log."""
        self._output.wait(0 if self.is_alive else _LAST_WORDS_S)
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"Its log, {self._log}, ends: " + " | ".join(lines[-_SHOWN_LINES:])

    def end(self) -> None:
        """End the driver and all processes that it started."""
        if self.is_alive:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDING_S)
        end_descendants()
        self._process.wait()


class Desk:
    """Starts and ends the driver (the process that controls verl) for one client.

    Only one client at a time can have a driver. With ``once``, the server ends when its
    first client disconnects.

    Attributes:
        ended: Set when the server should end.
    """

    def __init__(self, log: Path, *, once: bool, command: Sequence[str]) -> None:
        self._log = log
        self._command = command
        self._once = once
        self._lock = threading.Lock()
        self._driver: Driver | None = None
        self._begun = time.monotonic()
        self.ended = threading.Event()

    def start(self, given: dict[str, Any]) -> tuple[Driver, "Future[dict[str, Any]]"]:
        """Start a driver, and start verl with a client's settings.

        Do not wait until verl runs: the future gets the driver's answer once verl has
        started, or the error.
        """
        if given.get("protocol") != PROTOCOL:
            raise Refused(
                409,
                f"this server speaks version {PROTOCOL} of the protocol, the client "
                f"{given.get('protocol')!r}: install the same agentgym on both sides",
            )
        if not isinstance(given.get("settings"), dict):
            raise Refused(400, "settings are missing")
        with self._lock:
            if self._driver is not None:
                raise Refused(409, "another run uses this server")
            self._driver = driver = Driver(self._log, self._command)
        pool = ThreadPoolExecutor(1)
        starting = pool.submit(driver.ask, "start", {"settings": given["settings"]})
        pool.shutdown(wait=False)
        return driver, starting

    def ask(self, verb: str, given: dict[str, Any]) -> Any:
        """Check a client's request, send it to the driver, and return the answer."""
        driver = self._driver
        if driver is None:
            raise Refused(409, "nothing was started")
        for number, row in enumerate(given.get("rows", ())):
            if problem := row_problem(row):
                raise Refused(400, f"row {number}: {problem}")
        return driver.ask(verb, given)

    def release(self, driver: Driver) -> None:
        """End a client's driver process; then another client may start verl."""
        driver.end()
        with self._lock:
            self._driver = None
        if self._once:
            self.ended.set()

    def watch(self) -> None:
        """Wait until ``ended`` is set."""
        while not self.ended.wait(1.0):
            waited = time.monotonic() - self._begun
            if self._once and self._driver is None and waited > _UNUSED_S:
                self.ended.set()

    def close(self) -> None:
        """End the driver if it still runs."""
        if self._driver is not None:
            self._driver.end()


def handler(desk: Desk, key: str) -> type[BaseHTTPRequestHandler]:
    """Return the class that handles requests to the server, which must have ``key``."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                given = self._read()
                if self.path == "/start":
                    self._lease(given)
                elif self.path.removeprefix("/") in _VERBS:
                    self._send(200, desk.ask(self.path.removeprefix("/"), given))
                else:
                    raise Refused(404, f"there is no {self.path}")
            except Refused as error:
                self._send(error.status, {"error": str(error)})
            except (TypeError, ValueError) as error:
                self._send(400, {"error": f"{type(error).__name__}: {error}"})
            except OSError:
                pass  # the client has gone

        def _read(self) -> dict[str, Any]:
            said = self.headers.get("Authorization", "")
            if not hmac.compare_digest(said.encode(), f"Bearer {key}".encode()):
                raise Refused(401, f"the key is not the one of {KEY_VARIABLE} here")
            size = int(self.headers.get("Content-Length") or 0)
            if not 0 <= size <= _MOST_BYTES:
                raise Refused(413, f"a request of {size:,} bytes is too large")
            given = json.loads(self.rfile.read(size) or b"{}")
            if not isinstance(given, dict):
                raise Refused(400, "a request is a JSON object")
            return given

        def _lease(self, given: dict[str, Any]) -> None:
            """Start verl; end it when the client disconnects."""
            driver, starting = desk.start(given)
            try:
                self.send_response(200)
                self.end_headers()
                while not starting.done():
                    self._line({"state": "starting"})
                    wait([starting], BEAT_S)
                try:
                    self._line({"state": "ready", **starting.result()})
                except Refused as error:
                    self._line({"state": "failed", "error": str(error)})
                    return
                while driver.is_alive and not desk.ended.is_set():
                    time.sleep(BEAT_S)
                    self._line({"state": "running"})
                if not driver.is_alive:
                    self._line({"state": "failed", "error": driver.last_words()})
            finally:
                desk.release(driver)

        def _line(self, message: dict[str, Any]) -> None:
            self.wfile.write(json.dumps(message).encode() + b"\n")
            self.wfile.flush()

        def _send(self, status: int, message: Any) -> None:
            data = json.dumps(message).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Do not log requests."""

    return Handler


def main(command: Sequence[str] = DRIVER) -> None:
    """Serve until a signal or, with ``--once``, until the client disconnects."""
    parser = argparse.ArgumentParser(description="verl, for agentgym train.")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=8700, help="0 takes a free one")
    parser.add_argument("--log", type=Path, default=Path("verl.log"))
    parser.add_argument(
        "--once",
        type=Path,
        help="end with the first client; this folder gets the port, and is removed",
    )
    given = parser.parse_args()
    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        sys.exit(f"Set {KEY_VARIABLE} to a key of your own: clients must give it.")
    adopt_orphans()
    desk = Desk(given.log.absolute(), once=given.once is not None, command=command)
    try:
        server = ThreadingHTTPServer((given.host, given.port), handler(desk, key))
    except OSError as error:
        sys.exit(f"{given.host}:{given.port} cannot be used: {error.strerror}.")
    server.daemon_threads = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: desk.ended.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if given.once is None:
        sys.stderr.write(f"Listening on {given.host}:{server.server_port}\n")
    else:
        part = given.once / "port.part"
        part.write_text(str(server.server_port))
        part.rename(given.once / "port")
    desk.watch()
    server.shutdown()
    desk.close()
    if given.once is not None:
        rmtree(given.once, ignore_errors=True)


if __name__ == "__main__":
    main()
