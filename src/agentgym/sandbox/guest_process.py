"""The host's side of one zygote: start it, hand it jobs, collect what comes back."""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agentgym.errors import SandboxError
from agentgym.sandbox import launch
from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.rungs import Rung
from agentgym.sandbox.runtime import (
    Runtime,
    own_runtime,
    readable_by_anyone,
    readable_runtime,
)
from agentgym.sandbox.slots import IdentitySlot

_START_S = 30.0
_GRACE_S = 15.0
_REPORT_BYTES = 4 << 20
_MOST_READ = 16 << 20


class GuestDiedError(SandboxError):
    """A zygote ended or stopped answering.

    Attributes:
        started: Whether the execution had begun, and so may be the cause.
    """

    def __init__(self, message: str, *, started: bool) -> None:
        self.started = started
        super().__init__(message)


@dataclass
class Stream:
    """What is read from one pipe: a prefix that is kept, and a count of all."""

    descriptor: int
    keep: int
    data: bytearray = field(default_factory=bytearray)
    seen: int = 0
    open: bool = True

    def read(self) -> bool:
        """Read what is there; return whether more may come at once."""
        try:
            chunk = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return False
        if not chunk:
            self.open = False
            return False
        self.seen += len(chunk)
        self.data += chunk[: max(0, self.keep - len(self.data))]
        if self.seen > _MOST_READ:
            self.open = False
        return self.open


@dataclass(frozen=True)
class Raw:
    """What one execution sent back, undecoded.

    Attributes:
        reply: The zygote's account: status, timed_out, wall_s, cpu_s.
        stdout: Standard output.
        stderr: Standard error.
        report: Lines that the child reported.
    """

    reply: Mapping[str, Any]
    stdout: Stream
    stderr: Stream
    report: Stream


class GuestProcess:
    """One running zygote.

    The thread that makes it must outlive it: the kernel ends it with that thread.

    Args:
        rung: How to isolate.
        config: What the user asked for.

    Raises:
        SandboxError: It did not start; the message quotes its own.
    """

    def __init__(self, rung: Rung, config: SandboxConfig) -> None:
        self._rung = rung
        privileged = os.geteuid() == 0 and (rung.bubblewrap or rung.landlock)
        self._slot = IdentitySlot() if privileged else None
        identity = None if self._slot is None else self._slot.identity
        start_as = None if rung.own_identity else identity
        private = rung.bubblewrap and rung.own_identity
        runtime = own_runtime() if private or not identity else readable_runtime()
        self.env = launch.environment(config, runtime)
        self._scratch: Path | None = None
        hidden = start_as is not None and not readable_by_anyone(launch.GUEST)
        if hidden or not rung.bubblewrap:
            self._scratch = _make_scratch(start_as)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._control, theirs = socket.socketpair()
        self._buffer = b""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with theirs:
                self._process = self._start(
                    config, runtime, theirs.fileno(), identity, start_as
                )
            self._wait_for("serving", time.monotonic() + _START_S, started=False)
        except (GuestDiedError, OSError) as error:
            self.close()
            raise SandboxError(
                f"The sandbox rung {rung.name!r} did not start: {error}"
            ) from error

    def _start(
        self,
        config: SandboxConfig,
        runtime: Runtime,
        control: int,
        identity: int | None,
        start_as: int | None,
    ) -> subprocess.Popen[bytes]:
        """Start the process."""
        folder = launch.GUEST
        if start_as is not None and not readable_by_anyone(folder):
            folder = Path(str(self._scratch), "guest")  # It was made for this.
            shutil.copytree(launch.GUEST, folder)
        guest = launch.guest_config(
            self._rung,
            config,
            runtime,
            identity=identity,
            scratch=None if self._rung.bubblewrap else self._scratch,
        )
        return subprocess.Popen(
            launch.command_line(self._rung, config, runtime, control, guest, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=(control,),
            env=self.env,
            cwd="/",
            start_new_session=True,
            user=start_as,
            group=start_as,
            extra_groups=None if start_as is None else [],
        )

    @property
    def pid(self) -> int:
        """Process id of the zygote, or of the bubblewrap around it."""
        return self._process.pid if self._process else 0

    def execute(
        self,
        payload: bytes,
        *,
        limits: Mapping[str, int],
        timeout_s: float,
        total_memory_mb: int,
        output_bytes: int,
        collect_bytes: int,
    ) -> Raw:
        """Run one execution and wait for its end.

        Args:
            payload: JSON of files, command and environment.
            limits: Resource limits by name.
            timeout_s: Wall-clock limit.
            total_memory_mb: Resident memory of all processes together.
            output_bytes: How much of each output to keep.
            collect_bytes: How much of the workspace to read back; 0 for nothing.

        Raises:
            GuestDiedError: The zygote ended or stopped answering.
        """
        job = {
            "limits": limits,
            "timeout_s": timeout_s,
            "total_memory_mb": total_memory_mb,
            "collect_bytes": collect_bytes,
        }
        ours: list[int] = []
        theirs = [_payload_file(payload)]
        for _ in range(3):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            ours.append(reader)
            theirs.append(writer)
        try:
            try:
                line = json.dumps(job).encode() + b"\n"
                socket.send_fds(self._control, [line], theirs)
            except OSError as error:
                raise GuestDiedError(self._last_words(), started=False) from error
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            keep = (output_bytes, output_bytes, _REPORT_BYTES + 2 * collect_bytes)
            streams = [Stream(*pair) for pair in zip(ours, keep, strict=True)]
            deadline = time.monotonic() + timeout_s + _GRACE_S
            self._wait_for("started", deadline, started=False)
            reply = self._wait_for("status", deadline, started=True, streams=streams)
            for stream in streams:
                while stream.open and stream.read():
                    pass
        finally:
            for descriptor in ours:
                os.close(descriptor)
        return Raw(reply, *streams)

    def _wait_for(
        self,
        key: str,
        deadline: float,
        *,
        started: bool,
        streams: list[Stream] | None = None,
    ) -> dict[str, Any]:
        """Return the next line of the zygote, reading the streams meanwhile."""
        by_descriptor = {stream.descriptor: stream for stream in streams or ()}
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise GuestDiedError("it stopped answering", started=started)
            for descriptor, _ in poll.poll(left * 1000 + 1):
                stream = by_descriptor.get(descriptor)
                if stream is None:
                    self._receive(started=started)
                elif not stream.read() and not stream.open:
                    poll.unregister(descriptor)
        first, _, self._buffer = self._buffer.partition(b"\n")
        line: dict[str, Any] = json.loads(first)
        if key not in line:
            raise GuestDiedError(f"it answered {line} out of turn", started=started)
        return line

    def _receive(self, *, started: bool) -> None:
        """Read from the control socket."""
        try:
            data = self._control.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise GuestDiedError(self._last_words(), started=started)
        self._buffer += data

    def _last_words(self) -> str:
        """Return how the process ended and what it wrote on stderr."""
        code: int | None = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=2)
        self._log.seek(0)
        text = self._log.read()[-2000:].decode(errors="replace").strip()
        return f"it ended (exit code {code}): {text or 'without a word'}"

    def close(self) -> None:
        """End the zygote and whatever it runs, and remove its folders."""
        self._control.close()
        self._log.close()
        if self._process is not None:
            try:
                self._process.wait(1.0 if self._rung.bubblewrap else _GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        if self._slot is not None:
            self._slot.release()


def _make_scratch(owner: int | None) -> Path:
    """Make a folder that executions can pass through but not list."""
    scratch = Path(tempfile.mkdtemp(prefix="agentgym-sandbox-"))
    scratch.chmod(0o711)
    if owner is not None:
        os.chown(scratch, owner, owner)
    return scratch


def _payload_file(payload: bytes) -> int:
    """Return the descriptor of an anonymous file, to be read from its start."""
    with tempfile.TemporaryFile(buffering=0) as target:
        target.write(payload)
        target.seek(0)
        return os.dup(target.fileno())
