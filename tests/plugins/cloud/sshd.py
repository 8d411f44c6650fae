"""A real SSH server of a test: own port, keys and home, as a normal process."""

import getpass
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")
MISSING = "needs OpenSSH's server and client (apt-get install openssh-server)"


def is_missing() -> bool:
    return SSHD is None or SSH is None


class Machine:
    """Another machine, which is this one with another home.

    Its environment has its own interpreter to train with: nothing is installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "there"
        self.home.mkdir(parents=True)
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.known_hosts = folder / "known_hosts"
        self.user_key = folder / "user"
        self.environment = {
            "HOME": str(self.home),
            "AGENTGYM_ELSEWHERE_PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
        }
        self.options: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.new_host_key()
        _make_key(self.user_key)
        (folder / "authorized").write_text(Path(f"{self.user_key}.pub").read_text())
        self.write_client_config(self.user_key)

    @property
    def gpu(self) -> str:
        return f"ssh:{getpass.getuser()}@127.0.0.1:{self.port}"

    def new_host_key(self) -> None:
        for path in self.folder.glob("host*"):
            path.unlink()
        _make_key(self.folder / "host")

    def know_host(self) -> None:
        """Put the host's key into the user's known hosts."""
        kind, key, *_ = (self.folder / "host.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def write_client_config(self, key: Path) -> None:
        """Let ``ssh`` of this test know nothing of the developer's own settings."""
        config = self.folder / "client_config"
        config.write_text(
            f"IdentityFile {key}\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {self.known_hosts}\nGlobalKnownHostsFile /dev/null\n"
        )
        self.shim("ssh", f'exec {SSH} -F {config} "$@"\n')

    def shim(self, name: str, script: str, *, there: bool = False) -> None:
        """Put a program before the real one, at home or there."""
        folder = self.folder / "bin-there" if there else self.bin
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        if there:
            self.environment["PATH"] = f"{folder}:/usr/bin:/bin"

    def start(self) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # root's servers want it
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host'}",
            f"AuthorizedKeysFile {self.folder / 'authorized'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "PidFile none",
            "MaxStartups 100",
            *self.options,
            "SetEnv " + " ".join(f'"{k}={v}"' for k, v in self.environment.items()),
        ]
        config = self.folder / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError((self.folder / "sshd.log").read_text())

    def connections(self) -> list[psutil.Process]:
        """Return the server's processes that serve a connection."""
        if self.process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children()
        return []

    def drop_connections(self) -> int:
        """Break every connection, as a network does; return how many there were."""
        found = self.connections()
        for process in found:
            for each in (process, *_descendants(process)):
                if "sshd" in _name(each):
                    with suppress(psutil.NoSuchProcess):
                        each.send_signal(signal.SIGKILL)
        return len(found)

    def stop_listening(self) -> None:
        """End the server; open connections stay."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def trainees(self) -> list[psutil.Process]:
        """Return the processes that train there."""
        return self._running("agentgym.plugins.cloud.trainee")

    def watchdogs(self) -> list[psutil.Process]:
        return self._running("watch")

    def _running(self, word: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                words = process.cmdline()
                inside = any(str(self.home) in word for word in words)
                if word in words and inside and process.status() != "zombie":
                    found.append(process)
        return found

    def close(self) -> None:
        self.drop_connections()
        self.stop_listening()
        for process in (*self.watchdogs(), *self.trainees()):
            with suppress(psutil.NoSuchProcess):
                for each in (*process.children(recursive=True), process):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def _make_key(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True)
