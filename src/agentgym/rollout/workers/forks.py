"""Fork server: import slow modules once, then fork children that start quickly.

Importing an agent framework takes seconds. So one process imports it, before it has any
threads, and every worker is forked from this process. User code is imported only in the
children, in the current folder and environment of the parent.
"""

import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from agentgym.core.collector import collect_rarely
from agentgym.core.settings import initial_environment
from agentgym.errors import RolloutError

_MOST_BYTES = 1 << 20
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_FAILED = 1


class Child:
    """A forked process; its standard output is read from the descriptor ``output``."""

    def __init__(self, pid: int, output: int, ended: "Future[int]") -> None:
        self.pid = pid
        self.output = output
        self._ended = ended

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process; return its exit code, or -N if signal N ended it."""
        return self._ended.result(timeout)

    def read(self, timeout: float) -> bytes:
        """Read until the process ends; raise TimeoutError after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        found = b""
        while data := self.read_some(max(0.0, deadline - time.monotonic())):
            found += data
        return found

    def read_some(self, timeout: float) -> bytes:
        """Wait for output, and return it; empty if the process has ended."""
        if not select.select([self.output], [], [], timeout)[0]:
            raise TimeoutError
        return os.read(self.output, 65536)

    def signal(self, number: int) -> None:
        """Send a signal to the process, unless the process has ended."""
        if not self._ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, grace_s: float) -> None:
        """Send SIGTERM to the process; kill it after ``grace_s`` seconds."""
        self.signal(signal.SIGTERM)
        try:
            self.wait(grace_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            self.wait()

    def close(self) -> None:
        """Close the descriptor ``output``."""
        os.close(self.output)


class ForkServer:
    """A process that forks children; started at the first fork, and again if it dies.

    The server imports the modules of ``preload`` before it forks. It has the
    environment of this process, and a few more variables, e.g. ``hash_seed`` as
    ``PYTHONHASHSEED``. At its start it gets only the variables with which this process
    was started; all others are sent over a socket. The reason: other processes can read
    a process's initial environment, and must not find a variable that was set later,
    e.g. a user's key.
    """

    def __init__(self, preload: tuple[str, ...], hash_seed: str = "random") -> None:
        self._preload = preload
        self._environment = {
            "LANGSMITH_TRACING": "false",
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": hash_seed,
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._lock = threading.Lock()
        self._server: _Connection | None = None

    def fork(self, target: str, argument: str, *, errors: int) -> Child:
        """Fork a child that calls ``target`` (``module:function``)."""
        with self._lock:
            if self._server is None or self._server.is_dead:
                self._server = _Connection(self._preload, self._environment)
            return self._server.fork(target, argument, errors)


# Returns this process's fork server for the arguments of `ForkServer`.
fork_server = functools.cache(ForkServer)


class _Connection:
    """The connection from this process to one server process."""

    def __init__(self, preload: Sequence[str], environment: dict[str, str]) -> None:
        self.is_dead = False
        self._failure = "it has ended"
        self._quiet = environment
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._answers: list[Future[int]] = []
        self._children: dict[int, Future[int]] = {}
        self._lock = threading.Lock()
        with theirs:
            python = [sys.executable, "-P"]  # nothing is preloaded from this folder
            command = [*python, "-m", __name__, str(theirs.fileno()), *preload]
            try:
                ours.send(_as_message({**os.environ, **environment}))
                self._process = subprocess.Popen(
                    command,
                    env={**initial_environment(), **environment},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise RolloutError(
                    f"No process can be started: {type(error).__name__}: {error}."
                ) from error
        self._thread = threading.Thread(
            target=self._listen, name="agentgym-forks", daemon=True
        )
        self._thread.start()

    def fork(self, target: str, argument: str, errors: int) -> Child:
        output, theirs = os.pipe()
        request = {
            "target": target,
            "argument": argument,
            "folder": os.getcwd(),
            "environment": {**os.environ, **self._quiet},
            "path": sys.path,
        }
        answer: Future[int] = Future()
        try:
            with self._lock:
                if not self.is_dead:
                    self._answers.append(answer)
                    message = [_as_message(request)]
                    socket.send_fds(self._socket, message, [theirs, errors])
                else:
                    answer.set_result(0)
            pid = answer.result()
        except OSError:
            pid = 0
        finally:
            os.close(theirs)
        if pid <= 0:
            os.close(output)
            raise RolloutError(f"No process can be forked: {self._failure}.")
        return Child(pid, output, self._children[pid])

    def _listen(self) -> None:
        """Handle the server's messages about children that started or ended."""
        with suppress(OSError):
            while message := self._socket.recv(_MOST_BYTES):
                said = json.loads(message)
                if "failed" in said:
                    self._failure = said["failed"]
                elif "began" in said:
                    self._children[said["began"]] = Future()
                    self._answers.pop(0).set_result(said["began"])
                else:
                    self._children[said["ended"]].set_result(said["code"])
        with self._lock:
            self.is_dead = True
        self._process.wait()
        for answer in self._answers:
            answer.set_result(0)
        for ended in self._children.values():
            if not ended.done():  # it died with the server
                ended.set_result(-signal.SIGKILL)


def main(descriptor: str, *preload: str) -> None:
    """Run the server: import ``preload``, then fork a child for each request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    collect_rarely()
    server = socket.socket(fileno=int(descriptor))
    _set_environment(json.loads(server.recv(_MOST_BYTES)))
    try:
        for module in preload:
            importlib.import_module(module)
        if threading.active_count() > 1:
            raise RuntimeError(f"an import began threads: {threading.enumerate()}")
    except BaseException as error:
        _say(server, failed=f"{type(error).__name__}: {error}")
        raise
    gc.collect()
    gc.freeze()  # so that children share these pages
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    while True:
        readable, _, _ = select.select([server.fileno(), wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _report_ended(server)
        if server.fileno() in readable:
            message, descriptors, _, _ = socket.recv_fds(server, _MOST_BYTES, 2)
            if not message:
                return  # the children die with this process
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for inherited in (server.fileno(), wake, woken):
                    os.close(inherited)
                _run(json.loads(message), *descriptors)
            for passed in descriptors:
                os.close(passed)
            _say(server, began=pid)


def _report_ended(server: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            _say(server, ended=found[0], code=os.waitstatus_to_exitcode(found[1]))


def _as_message(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogateescape")


def _set_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _say(server: socket.socket, **message: Any) -> None:
    with suppress(BrokenPipeError):  # the parent has gone, and the loop will notice it
        server.send(json.dumps(message).encode())


def _run(request: dict[str, Any], output: int, errors: int) -> None:
    """Call the requested function in the child, then end the process."""
    import ctypes

    code = _FAILED
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        for passed in (output, errors):
            os.close(passed)
        _set_environment(request["environment"])
        os.chdir(request["folder"])
        sys.path[:] = request["path"]
        code = resolve_name(request["target"])(request["argument"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else _FAILED
    except BaseException:  # noqa: BLE001 - it ends here, whatever it is
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
