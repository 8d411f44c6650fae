"""The host's side of one zygote: start it, hand it jobs, collect what comes back."""

import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox import launch
from agentgym.sandbox.commands import Job
from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.guest.settings import Rung
from agentgym.sandbox.report import complete
from agentgym.sandbox.result import SandboxResult
from agentgym.sandbox.runtime import own_runtime, readable_by_anyone, readable_runtime

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
class _Stream:
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
        self.seen += len(chunk)
        self.data += chunk[: max(0, self.keep - len(self.data))]
        self.open = bool(chunk) and self.seen <= _MOST_READ
        return self.open


class GuestProcess:
    """One running zygote.

    The thread that makes it must outlive it: the kernel ends it with that thread.

    Args:
        rung: How to isolate.
        config: What the user asked for.

    Attributes:
        process: The zygote, or the bubblewrap around it.

    Raises:
        SandboxError: It did not start; the message quotes its own.
    """

    process: subprocess.Popen[bytes] | None = None

    def __init__(self, rung: Rung, config: SandboxConfig) -> None:
        self._rung = rung
        self._config = config
        self._buffer = b""
        self._owned = ExitStack()
        try:
            self._start()
            self._wait_for("serving", time.monotonic() + _START_S)
        except (GuestDiedError, OSError) as error:
            self.close()
            raise SandboxError(
                f"The sandbox rung {rung.name!r} did not start: {error}"
            ) from error

    def _start(self) -> None:
        """Start the process; whatever it needs is freed in the opposite order."""
        rung, config = self._rung, self._config
        identity: int | None = None
        if os.geteuid() == 0 and rung.isolates:
            identity, lock = launch.reserve_identity()
            self._owned.enter_context(lock)
        start_as = None if rung.own_identity else identity
        sees_ours = identity is None or (rung.bubblewrap and rung.own_identity)
        runtime = own_runtime() if sees_ours else readable_runtime()
        guest, scratch = launch.GUEST, None
        hidden = start_as is not None and not readable_by_anyone(guest)
        if hidden or not rung.bubblewrap:
            scratch = Path(tempfile.mkdtemp(prefix="agentgym-sandbox-"))
            self._owned.callback(shutil.rmtree, scratch, ignore_errors=True)
            scratch.chmod(0o711)  # Executions can pass through but not list.
            if start_as is not None:
                os.chown(scratch, start_as, start_as)
            if hidden:
                guest = shutil.copytree(guest, scratch / "guest")
        self._log = self._owned.enter_context(tempfile.TemporaryFile())
        self._owned.callback(self._end)
        self._control, theirs = socket.socketpair()
        self._owned.enter_context(self._control)
        with theirs:
            command = launch.command_line(
                rung,
                config,
                runtime,
                guest=guest,
                control=theirs.fileno(),
                identity=identity,
                scratch=scratch,
            )
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env=launch.environment(config, runtime),
                cwd="/",
                start_new_session=True,
                user=start_as,
                group=start_as,
                extra_groups=None if start_as is None else [],
            )

    def run(self, job: Job) -> SandboxResult:
        """Run one execution and wait for its end.

        Raises:
            GuestDiedError: The zygote ended or stopped answering.
        """
        limits = self._config.limits
        report_bytes = _REPORT_BYTES + 2 * limits.collect_bytes * job.collect
        streams: list[_Stream] = []
        theirs = [_payload_file(job.payload)]
        try:
            for keep in (limits.output_bytes, limits.output_bytes, report_bytes):
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                streams.append(_Stream(reader, keep))
                theirs.append(writer)
            try:
                line = json.dumps({"timeout_s": job.timeout_s, "collect": job.collect})
                socket.send_fds(self._control, [line.encode() + b"\n"], theirs)
            except OSError as error:
                raise GuestDiedError(self._last_words(), started=False) from error
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            deadline = time.monotonic() + job.timeout_s + _GRACE_S
            self._wait_for("started", deadline)
            reply = self._wait_for("status", deadline, streams)
            for stream in streams:
                while stream.open and stream.read():
                    pass
        finally:
            for stream in streams:
                os.close(stream.descriptor)
        out, err, report = streams
        result = SandboxResult(
            **reply,
            stdout=out.data.decode(errors="replace"),
            stderr=err.data.decode(errors="replace"),
            truncated=any(stream.seen > stream.keep for stream in (out, err)),
            rung=self._rung.name,
            warm=self._config.warm,
        )
        return complete(result, job, bytes(report.data))

    def _wait_for(
        self, key: str, deadline: float, streams: list[_Stream] | None = None
    ) -> dict[str, Any]:
        """Return the zygote's next line; with streams, read them meanwhile."""
        started = streams is not None
        by_descriptor = {stream.descriptor: stream for stream in streams or ()}
        poll = select.poll()
        for source in (self._control.fileno(), *by_descriptor):
            poll.register(source, select.POLLIN)
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
        data = b""
        with suppress(ConnectionError):
            data = self._control.recv(65536)
        if not data:
            raise GuestDiedError(self._last_words(), started=started)
        self._buffer += data

    def _last_words(self) -> str:
        """Return how the process ended and what it wrote on stderr."""
        code: int | None = None
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self.process.wait(timeout=2)
        self._log.seek(0)
        text = self._log.read()[-2000:].decode(errors="replace").strip()
        return f"it ended (exit code {code}): {text or 'without a word'}"

    def close(self) -> None:
        """End the zygote and whatever it runs, and remove its folders."""
        self._owned.close()

    def _end(self) -> None:
        """Wait for the process, whose socket is closed, and end it if it stays."""
        if self.process is None:
            return
        try:
            self.process.wait(1.0 if self._rung.bubblewrap else _GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _payload_file(payload: bytes) -> int:
    """Return the descriptor of an anonymous file, to be read from its start."""
    with tempfile.TemporaryFile(buffering=0) as target:
        target.write(payload)
        target.seek(0)
        return os.dup(target.fileno())
