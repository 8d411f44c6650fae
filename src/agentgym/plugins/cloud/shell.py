"""Run commands on another machine with the system's OpenSSH client, and ask its server.

A connection that breaks is made again, for a limited time.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agentgym.core.files import parse_json
from agentgym.errors import ComputeError, UnreachableError
from agentgym.evaluate.events import Observer, Warned
from agentgym.plugins.cloud.base import Address

LONG_S = (1.0, 2.0, 4.0, 8.0, *(15.0,) * 40)
"""Seconds between attempts to reconnect, ten minutes in total."""
SHORT_S = (1.0, 2.0)
"""Seconds between attempts on the user's own machine, where a failure loses nothing."""
_BROKEN = 255
_LOOK_S = 0.5
_TRIES = 3
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
    "LogLevel=ERROR",
)
_REFUSED = (
    *("Host key verification failed", "host key is known", "Permission denied"),
    "Too many authentication",
)
_OFFENDING = re.compile(r"Offending .*key in (\S+:\d+)")


@dataclass
class Reconnect:
    """Retries the connection to one machine for a limited time.

    Attributes:
        waits_s: Seconds to wait before each attempt to connect; after the first
            success, :data:`LONG_S`.
        meanwhile: Text for the warning that a connection broke.
        require_machine: Called after a failed attempt; raises an error if the machine
            does not exist any more.
        heed: Called while waiting; raises an error to end it.
    """

    where: Address
    progress: Observer
    waits_s: Sequence[float]
    meanwhile: str = ""
    require_machine: Callable[[], None] = lambda: None
    heed: Callable[[], None] = lambda: None

    def call[T](
        self,
        act: Callable[[], T],
        connect: Callable[[], object],
        tries: float = float("inf"),
    ) -> T:
        """Call ``act``; after a broken connection, ``connect`` and call it again."""
        while True:
            try:
                found = act()
            except UnreachableError as error:
                if (tries := tries - 1) <= 0:
                    raise
                self._connect(connect, error)
            else:
                self.waits_s = LONG_S
                return found

    def _connect(self, connect: Callable[[], object], error: UnreachableError) -> None:
        if self.waits_s:
            self.progress(Warned(f"{error} Trying again{self.meanwhile}."))
        for wait_s in self.waits_s:
            until = time.monotonic() + wait_s
            while (left := until - time.monotonic()) > 0:
                self.heed()
                time.sleep(min(left, _LOOK_S))
            self.heed()
            try:
                connect()
            except UnreachableError as found:
                error = found
                self.require_machine()
                continue
            self.progress(Warned(f"Connected to {self.where} again."))
            return
        raise error


@dataclass(frozen=True)
class Shell:
    """Runs commands on a machine; each command has its own SSH connection.

    ``~/.ssh/config``, the SSH agent and jump hosts are used as by ``ssh``.

    Attributes:
        key_file: Private key for the login; None uses SSH's own settings.
        known_hosts: File for the machine's host key. The first connection writes the
            key; later connections require it. None uses SSH's own files, one of which
            must already have the key.
        reconnect: How to retry :meth:`run`, three times in all; None not to.
    """

    address: Address
    key_file: Path | None = None
    known_hosts: Path | None = None
    reconnect: Reconnect | None = None

    def run(
        self, command: str, *, data: bytes | IO[bytes] = b"", timeout_s: float = 60.0
    ) -> str:
        """Run a command in POSIX sh, and return its output."""
        # Both machines' process lists show the command, so secrets go into ``data``.
        if self.reconnect is None:
            return self._run(command, data, timeout_s)
        return self.reconnect.call(
            lambda: self._run(command, data, timeout_s), lambda: self._run(":"), _TRIES
        )

    def _run(
        self, command: str, data: bytes | IO[bytes] = b"", timeout_s: float = 60.0
    ) -> str:
        source: int | IO[bytes] = subprocess.PIPE
        if not isinstance(data, bytes):
            data.seek(0)
            source, data = data, b""
        process = self.start(command, subprocess.PIPE, source)
        try:
            out, err = process.communicate(data or None, timeout_s)
        except subprocess.TimeoutExpired:
            raise UnreachableError(
                f"{self.address} did not answer within {timeout_s:.0f} seconds."
            ) from None
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise self.explained(process.returncode, err.decode(errors="replace"))
        return out.decode(errors="replace")

    def start(
        self,
        command: str,
        errors: int | IO[bytes],
        source: int | IO[bytes] = subprocess.PIPE,
    ) -> "subprocess.Popen[bytes]":
        """Start a command; its input is ``source``, its output a pipe."""
        if shutil.which("ssh") is None:
            raise ComputeError(
                "A machine over SSH needs the program ssh, which is missing. Install "
                "OpenSSH's client (openssh-client)."
            )
        return subprocess.Popen(
            [*self._words(), f"exec sh -c {shlex.quote(command)}"],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )

    def _words(self) -> list[str]:
        options = list(_OPTIONS)
        if self.known_hosts is not None:
            options += [
                f"UserKnownHostsFile={shlex.quote(str(self.known_hosts))}",
                f"GlobalKnownHostsFile={os.devnull}",
                "StrictHostKeyChecking=accept-new",
                "HashKnownHosts=no",
                "CheckHostIP=no",
            ]
        if self.key_file is not None:
            options.append("IdentitiesOnly=yes")
        address = self.address
        return [
            "ssh",
            *(word for option in options for word in ("-o", option)),
            *(() if self.key_file is None else ("-i", str(self.key_file))),
            *(("-p", str(address.port)) if address.port != 22 else ()),
            *(("-l", address.user) if address.user else ()),
            "--",
            address.host,
        ]

    def explained(self, code: int, said: str) -> ComputeError:
        """Return the exception for a failed connection or a failed remote command."""
        where = self.address
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        last = lines[-1].rstrip(".") if lines else ""
        port = f" -p {where.port}" if where.port != 22 else ""
        user = f"{where.user}@" if where.user else ""
        by_hand = f"ssh{port} {user}{where.host}"
        if code != _BROKEN:
            return ComputeError(f"{where}: {last or f'exit code {code}'}")
        if "has changed" in said.lower():
            line = _OFFENDING.search(said)
            return ComputeError(
                f"The SSH server of {where} has another key than before, so it may be "
                "another machine: nothing was sent. If you know why, remove the old "
                f"key ({line[1] if line else 'in known_hosts'}) and try again."
            )
        if any(words in said for words in _REFUSED):
            return ComputeError(
                f"{where} cannot be logged in to: {last}. Make this work without a "
                f"question first: {by_hand}"
            )
        message = f"{where} cannot be reached: {last or 'the connection broke'}."
        if self.key_file is None:  # otherwise it is rented, and the user has no login
            message += f" Try it by hand: {by_hand}"
        return UnreachableError(message)


class Channel:
    """Sends requests about one run to a ``RunServer`` over one SSH connection."""

    def __init__(self, shell: Shell, python: str, folder: str) -> None:
        self.shell = shell
        self._command = (
            f"exec {shlex.quote(python)} -m agentgym.plugins.cloud.run_server "
            f"{shlex.quote(folder)}"
        )
        self._client = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> dict[str, Any]:
        """Start the run's server; return the run's state from ``RunServer.hello``."""
        self.close()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = self.shell.start(self._command, self._errors)
        try:
            state: dict[str, Any] = self.ask("hello", client=self._client)[0]
        except BaseException:
            self.close()
            raise
        return state

    def close(self) -> None:
        """Close the connection."""
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._errors.close()
            self._process = None

    def ask(self, op: str, payload: bytes = b"", **more: Any) -> tuple[Any, bytes]:
        """Call a method of ``RunServer``; return its answer, and bytes sent with it.

        A machine that does not answer any more ends ssh, by ``ServerAliveInterval``.
        """
        if self._process is None:
            raise UnreachableError(f"{self.shell.address} is not connected.")
        there, back = self._process.stdin, self._process.stdout
        assert there is not None
        assert back is not None
        head = {"op": op, "size": len(payload), **more}
        try:
            there.write(json.dumps(head).encode() + b"\n" + payload)
            there.flush()
            if not (line := back.readline()).endswith(b"\n"):
                raise EOFError
            answer = parse_json(line)
            body = back.read(answer.get("size", 0))
            if len(body) < answer.get("size", 0):
                raise EOFError
        except (OSError, EOFError, ValueError) as error:
            raise self._broken(error) from None
        if "error" in answer:
            message = f"{self.shell.address}: {answer['error']}"
            if answer["kind"] == "busy":
                message += ". Wait for it, or end it there."
            raise ComputeError(message)
        return answer["found"], body

    def _broken(self, error: Exception) -> ComputeError:
        """Close the connection; return the exception for an unanswered request."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.returncode
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        where = self.shell.address
        self.close()
        if isinstance(error, json.JSONDecodeError):
            return ComputeError(
                f"{where} prints text before its answer; let its shell print "
                "nothing in sessions without a terminal (~/.bashrc)."
            )
        if code is None or code < 0:
            return UnreachableError(f"{where} does not answer any more.")
        return self.shell.explained(code or 255, said)
