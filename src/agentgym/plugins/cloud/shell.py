"""Shell: run commands on another machine with the system's OpenSSH client."""

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agentgym.errors import ComputeError, UnreachableError
from agentgym.plugins.cloud.base import Address

_BROKEN = 255
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


@dataclass(frozen=True)
class Shell:
    """Runs commands on a machine; each command has its own SSH connection.

    ``~/.ssh/config``, the SSH agent and jump hosts are used as by ``ssh``.

    Attributes:
        address: Address of the machine's SSH server.
        key_file: Private key for the login; None uses SSH's own settings.
        known_hosts: File for the machine's host key. The first connection writes the
            key; later connections require it. None uses SSH's own files, one of which
            must already have the key.
    """

    address: Address
    key_file: Path | None = None
    known_hosts: Path | None = None

    def run(self, command: str, *, data: bytes = b"", timeout_s: float = 60.0) -> str:
        """Run a command in POSIX sh, and return its output.

        The command is visible in the process lists of both machines. So pass secrets in
        ``data``, the command's standard input.
        """
        process = self.start(command, errors=subprocess.PIPE)
        try:
            out, err = process.communicate(data, timeout_s)
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

    def start(self, command: str, errors: int | IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start a command, and return the process, with pipes for input and output."""
        if shutil.which("ssh") is None:
            raise ComputeError(
                "A machine over SSH needs the program ssh, which is missing. Install "
                "OpenSSH's client (openssh-client)."
            )
        return subprocess.Popen(
            [*self._words(), f"exec sh -c {shlex.quote(command)}"],
            stdin=subprocess.PIPE,
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
        where, last = self.address, _last_line(said)
        if code != _BROKEN:
            return ComputeError(f"{where}: {last or f'exit code {code}'}")
        if "IDENTIFICATION HAS CHANGED" in said or "has changed" in said:
            return ComputeError(
                f"The SSH server of {where} has another key than before, so it may be "
                f"another machine: nothing was sent. If you know why, {self._forget()} "
                "and try again."
            )
        if "Host key verification failed" in said or "host key is known" in said:
            return ComputeError(
                f"The key of {where} is not known here. Connect once by hand and "
                f"compare it: {self._by_hand()}"
            )
        if "Permission denied" in said or "Too many authentication" in said:
            return ComputeError(
                f"{where} does not let the run's own key in ({last})."
                if self.key_file is not None
                else f"{where} accepts none of the keys that ssh offers "
                f"({last}). Make this work without a password first: {self._by_hand()}"
            )
        message = f"{where} cannot be reached: {last or 'the connection broke'}."
        if self.key_file is None:  # otherwise it is rented, and the user has no login
            message += f" Try it by hand: {self._by_hand()}"
        return UnreachableError(message)

    def _by_hand(self) -> str:
        port = f" -p {self.address.port}" if self.address.port != 22 else ""
        user = f"{self.address.user}@" if self.address.user else ""
        return f"ssh{port} {user}{self.address.host}"

    def _forget(self) -> str:
        if self.known_hosts is not None:
            return f"remove {self.known_hosts}"
        name, file = self._known_as()
        where = f" -f {shlex.quote(file)}" if file else ""
        return f"forget the old one (ssh-keygen{where} -R {shlex.quote(name)})"

    def _known_as(self) -> tuple[str, str]:
        """Return the machine's name in SSH's file ``known_hosts``, and the file's path.

        The path is empty for ``~/.ssh/known_hosts``. Both depend on ``~/.ssh/config``,
        so they are read with ``ssh -G``.
        """
        *options, dashes, host = self._words()
        words = [*options, "-G", dashes, host]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = (line.partition(" ") for line in done.stdout.splitlines())
        found = {key: value for key, _, value in lines}
        name = found.get("hostname", host)
        port = found.get("port", str(self.address.port))
        name = name if port == "22" else f"[{name}]:{port}"
        file, *_ = [*found.get("userknownhostsfile", "").split(), ""]
        usual = Path("~/.ssh/known_hosts")
        is_usual = not file or Path(file).expanduser() == usual.expanduser()
        return found.get("hostkeyalias", name), "" if is_usual else file


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else ""
