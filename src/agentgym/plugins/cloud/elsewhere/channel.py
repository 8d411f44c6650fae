"""Channel: send requests about one run to its server on another machine."""

import json
import os
import select
import shlex
import subprocess
import tempfile
import uuid
from contextlib import suppress
from typing import Any

from agentgym.core.files import parse_json
from agentgym.errors import ComputeError, UnreachableError
from agentgym.plugins.cloud.shell import Shell

_PART = 1 << 16
_ANSWER_S = 45.0


class Channel:
    """Sends requests about one run to a ``RunServer`` over SSH."""

    def __init__(self, shell: Shell, python: str, folder: str) -> None:
        self.shell = shell
        self._command = (
            f"exec {shlex.quote(python)} -m agentgym.plugins.cloud.elsewhere"
            f".run_server {shlex.quote(folder)}"
        )
        self._client = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None
        self._came = b""

    def open(self) -> dict[str, Any]:
        """Start the run's server; return the run's state from ``RunServer.hello``."""
        self.close()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = self.shell.start(self._command, self._errors)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._came = b""
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

    def ask(
        self,
        op: str,
        payload: bytes = b"",
        *,
        patience_s: float = _ANSWER_S,
        **more: Any,
    ) -> tuple[Any, bytes]:
        """Call a method of ``RunServer``; return its answer, and bytes sent with it."""
        if self._process is None:
            raise UnreachableError(f"There is no connection to {self.shell.address}.")
        head = {"op": op, "size": len(payload), **more}
        try:
            self._write(json.dumps(head).encode() + b"\n" + payload, patience_s)
            answer = parse_json(self._line(patience_s))
            body = self._exactly(answer.get("size", 0), patience_s)
        except (OSError, EOFError, ValueError) as error:
            raise self._broken(error) from None
        if "error" in answer:
            message = f"{self.shell.address}: {answer['error']}"
            if answer["kind"] == "busy":
                message += ". Wait for it, or end it there."
            raise ComputeError(message)
        return answer["found"], body

    def _write(self, data: bytes, patience_s: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        pipe, left = self._process.stdin.fileno(), memoryview(data)
        while left:
            if not select.select([], [pipe], [], patience_s)[1]:
                raise TimeoutError("it takes nothing any more")
            with suppress(BlockingIOError):
                left = left[os.write(pipe, left[:_PART]) :]

    def _line(self, patience_s: float) -> bytes:
        while b"\n" not in self._came:
            self._came += self._part(patience_s)
        line, _, self._came = self._came.partition(b"\n")
        return line

    def _exactly(self, size: int, patience_s: float) -> bytes:
        parts, have = [self._came], len(self._came)
        while have < size:
            parts.append(self._part(patience_s))
            have += len(parts[-1])
        whole = b"".join(parts)
        self._came = whole[size:]
        return whole[:size]

    def _part(self, patience_s: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], patience_s)[0]:
            raise TimeoutError("it does not answer any more")
        part = os.read(pipe, _PART)
        if not part:
            raise EOFError
        return part

    def _broken(self, error: Exception) -> ComputeError:
        """Close the connection; return the exception for an unanswered request."""
        assert self._process is not None
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(0.0 if isinstance(error, TimeoutError) else 5.0)
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
