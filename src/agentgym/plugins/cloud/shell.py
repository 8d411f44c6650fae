"""Run commands on another machine with the system's OpenSSH client.

A connection that breaks is made again, for a limited time.
"""

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from agentgym.errors import ComputeError, UnreachableError
from agentgym.evaluate.events import Observer, Warned, silent
from agentgym.plugins.cloud.base import Address

LONG_S = (1.0, 2.0, 4.0, 8.0, *(15.0,) * 40)
"""Seconds between attempts to reconnect, ten minutes in total."""
SHORT_S = (1.0, 2.0)
"""Seconds between attempts on the user's own machine, where a failure loses nothing."""
_BROKEN = 255
_LOOK_S = 0.5
_TRIES = 5
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
    "ControlMaster=auto",  # the first command's connection serves the others
    "ControlPersist=60",
)
_REFUSED = (
    *("Host key verification failed", "host key is known", "Permission denied"),
    "Too many authentication",
)
_OFFENDING = re.compile(r"Offending .*key in (\S+:\d+)")


class Shell:
    """Runs commands on a machine, over an SSH connection that they share.

    ``~/.ssh/config``, the SSH agent and jump hosts are used as by ``ssh``.

    Attributes:
        key_file: Private key for the login; None uses SSH's own settings.
        known_hosts: File for the machine's host key. The first connection writes the
            key; later connections require it. None uses SSH's own files, one of which
            must already have the key.
        waits_s: Seconds to wait before each attempt to connect again; after the first
            success, :data:`LONG_S`.
        heed: Called while waiting; raises an error to end it.
        require_machine: Called after a failed attempt; raises an error if the machine
            does not exist any more.
        meanwhile: Text for the warning that a connection broke.
    """

    def __init__(
        self,
        address: Address,
        key_file: Path | None = None,
        known_hosts: Path | None = None,
        *,
        progress: Observer = silent,
        waits_s: Sequence[float] = (),
        require_machine: Callable[[], None] = lambda: None,
    ) -> None:
        self.address, self.key_file, self.known_hosts = address, key_file, known_hosts
        self.waits_s, self.require_machine = waits_s, require_machine
        self.heed: Callable[[], None] = lambda: None
        self.meanwhile = ""
        self._progress = progress
        self._folder = tempfile.TemporaryDirectory(prefix="agentgym-")

    def run(
        self,
        command: str,
        *,
        data: bytes | IO[bytes] = b"",
        output: IO[bytes] | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """Run a command in POSIX sh; return its output, or write it to ``output``.

        After a broken connection, connect and run the command again.
        """
        # Both machines' process lists show the command, so secrets go into ``data``.
        for tries_left in reversed(range(_TRIES)):
            try:
                found = self._run(command, data, output, timeout_s)
            except UnreachableError as error:
                if not tries_left:
                    raise
                self._reconnect(error)
            else:
                self.waits_s = LONG_S
                return found
        raise AssertionError("unreachable")

    def _reconnect(self, error: UnreachableError) -> None:
        if self.waits_s:
            self._progress(Warned(f"{error} Trying again{self.meanwhile}."))
        for wait_s in self.waits_s:
            until = time.monotonic() + wait_s
            while (left := until - time.monotonic()) > 0:
                self.heed()
                time.sleep(min(left, _LOOK_S))
            self.heed()
            try:
                self._run(":")
            except UnreachableError as found:
                error = found
                self.require_machine()
                continue
            self._progress(Warned(f"Connected to {self.address} again."))
            return
        raise error

    def _run(
        self,
        command: str,
        data: bytes | IO[bytes] = b"",
        output: IO[bytes] | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        for file in (data, output):
            if not isinstance(file, bytes | None):
                file.seek(0)
        if output is not None:
            output.truncate()
        # Not a pipe, since ssh keeps it open for the connection that is shared.
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    [*self._words(), f"exec sh -c {shlex.quote(command)}"],
                    stdin=subprocess.PIPE if isinstance(data, bytes) else data,
                    stdout=subprocess.PIPE if output is None else output,
                    stderr=errors,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise ComputeError(
                    "A machine over SSH needs the program ssh, which is missing. "
                    "Install OpenSSH's client (openssh-client)."
                ) from None
            try:
                given = data if isinstance(data, bytes) else None
                out, _ = process.communicate(given, timeout_s)
            except subprocess.TimeoutExpired:
                raise UnreachableError(
                    f"{self.address} did not answer within {timeout_s:.0f} seconds."
                ) from None
            finally:
                process.kill()
                process.wait()
            if process.returncode:
                errors.seek(0)
                said = errors.read().decode(errors="replace")
                raise self._explained(process.returncode, said)
        return (out or b"").decode(errors="replace")

    def _words(self) -> list[str]:
        options, address = list(_OPTIONS), self.address
        options.append(f"ControlPath={shlex.quote(f'{self._folder.name}/ssh')}")
        if self.known_hosts is not None:
            options += [
                f"UserKnownHostsFile={shlex.quote(str(self.known_hosts))}",
                f"GlobalKnownHostsFile={os.devnull}",
                "StrictHostKeyChecking=accept-new",
                "HashKnownHosts=no",
                "CheckHostIP=no",
            ]
        words = ["ssh"]
        if self.key_file is not None:
            options.append("IdentitiesOnly=yes")
            words += ["-i", str(self.key_file)]
        words += [word for option in options for word in ("-o", option)]
        return [*words, *_login(address), "--", address.host]

    def _explained(self, code: int, said: str) -> ComputeError:
        """Return the exception for a failed connection or a failed remote command."""
        where = self.address
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        last = lines[-1].rstrip(".") if lines else ""
        by_hand = " ".join(("ssh", *_login(where), where.host))
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


def _login(address: Address) -> list[str]:
    """Return the options of ``ssh`` for an address's port and user."""
    port = ["-p", str(address.port)] if address.port != 22 else []
    return port + (["-l", address.user] if address.user else [])
