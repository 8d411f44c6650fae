"""Run a user's program with limits on time, memory and output."""

import functools
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from agentgym.core.files import scratch_folder
from agentgym.errors import ProgramError
from agentgym.programs import guard

MARK = "AGENTGYM_EPISODE"
"""Environment variable that all processes of a program inherit. Its value is different
for each program, so that all processes can be found and killed."""
MOST_OUTPUT = 1 << 20
"""Maximum size, in bytes, of a program's answer, which it writes to standard output."""
TOO_MUCH_OUTPUT = "program: output"
"""``ProgramError.kind`` of a program that wrote too much."""
MEMORY_MB = 4096
"""Default limit on the memory of a program and its children, in megabytes."""

_MOST_ERRORS = 64 << 20
_SHOWN_ERRORS = 2000
_POLL_S = 0.05
_HAS_PROC = os.path.isdir("/proc/self")
_LATE_S = 0.5
_LIMITS = (
    'ulimit -S -v unlimited 2>/dev/null; ulimit -S -d "$1" 2>/dev/null; '
    'shift; exec "$@"'
)
"""Shell script that starts a program with a limit on data memory, not address space.

A program would inherit this process's limit on address space. The runtimes of some
languages reserve much more address space than they use, and would fail.
"""


_NOT_ITS_CODE = re.compile(
    r"connect|timed? ?out|timeout|network|socket|resolve|unreachable|econn|enotfound"
    r"|eai_again|memory|no space left|rate.?limit|quota|credential|unauthorized"
    r"|forbidden|modulenotfound|importerror|cannot find (?:module|package)",
    re.IGNORECASE,
)
"""Words of errors that a program's surroundings cause, e.g. a server or the machine."""
_IS_ERROR = re.compile(r"[\w.]*(?:Error|Exception|panic)\b")
_ENDED_INPUT = re.compile(r"EOFError\b|Aborted[.!]?$")


def is_own_fault(error: str) -> bool:
    """Return whether the text of an error names no cause outside of a program."""
    return _NOT_ITS_CODE.search(error) is None


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        exit_code: Exit code; minus the signal's number if a signal killed the program.
    """

    exit_code: int
    output: str
    errors: str

    @property
    def last_error(self) -> str:
        """The last error on standard error, else its last line; empty without one."""
        lines = self.errors.strip().splitlines()
        errors = [line for line in lines if _IS_ERROR.match(line)]
        return (errors or lines or [""])[-1]

    @property
    def is_crash(self) -> bool:
        """Whether the program's own code failed, not e.g. a connection."""
        return self.exit_code > 0 and is_own_fault(self.last_error)

    @property
    def wanted_input(self) -> bool:
        """Whether it failed because its standard input had no further line."""
        # Python's `input` raises EOFError then; click's prompts print "Aborted!".
        return self.exit_code == 1 and _ENDED_INPUT.match(self.last_error) is not None

    @property
    def why(self) -> str:
        """Phrase with the exit code or signal, and the last error."""
        last = f": {self.last_error:.300}" if self.last_error else ""
        if self.exit_code < 0:
            return f"it was killed by signal {-self.exit_code}{last}"
        return f"it ended with exit code {self.exit_code}{last}"


class Watcher:
    """Starts the guard, which kills programs that use too much memory or survive us.

    ``folder`` is the parent of the programs' folders, and is removed when this process
    ends.
    """

    def __init__(self) -> None:
        self._kept = ExitStack()
        self.folder = self._kept.enter_context(scratch_folder("programs"))
        self._over: dict[bytes, threading.Event] = {}
        script = str(Path(guard.__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether the guard process still runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the guard process."""
        return self._process.pid

    def begin(self, mark: bytes, memory_mb: int) -> threading.Event:
        """Limit the memory of the processes with the variable ``mark`` (``A=B``).

        Return an event that is set when they were killed at this limit.
        """
        self._over[mark] = over = threading.Event()
        self._say(b"+ %s %d\n" % (mark, memory_mb))
        return over

    def end(self, mark: bytes) -> None:
        """Stop limiting the memory of the program with this ``mark``."""
        self._over.pop(mark, None)
        self._say(b"- %s\n" % mark)

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            os.write(self._process.stdin.fileno(), line)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            _, _, mark = line.strip().partition(b" ")
            if (over := self._over.get(mark)) is not None:
                over.set()


def watcher() -> Watcher:
    """Return this process's Watcher; start a new one if its guard process has ended."""
    with _STARTING:
        found = _watcher_of(os.getpid())
        if not found.is_alive:
            _watcher_of.cache_clear()
            found = _watcher_of(os.getpid())
        return found


_STARTING = threading.Lock()


@functools.cache
def _watcher_of(pid: int) -> Watcher:
    return Watcher()


def new_folder() -> Path:
    """Make a folder for a program; it is removed when this process ends."""
    return Path(tempfile.mkdtemp(dir=watcher().folder))


class ProgramRun:
    """Starts a program, without a shell; sends its input, and reads its output."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        *,
        memory_mb: int = MEMORY_MB,
    ) -> None:
        self._name = words[0]
        self._memory_mb = memory_mb
        name = secrets.token_hex(12)
        self._mark = f"{MARK}={name}".encode()
        self._watcher = watcher()
        self._over = self._watcher.begin(self._mark, memory_mb)
        self._killed: ProgramError | None = None
        self._output, self._errors, self._errors_seen = bytearray(), bytearray(), 0
        # Twice the limit, in KB. The guard only checks now and then; this limit stops a
        # program at once.
        limit = str(memory_mb << (10 + 1))
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LIMITS, "sh", limit, *words],
                cwd=folder,
                env={**os.environ, **variables, MARK: name},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._watcher.end(self._mark)
            raise ProgramError(
                "program", f"{self._name} cannot be started: {error}"
            ) from error

    def kill(self, why: ProgramError | None = None) -> None:
        """Kill the program's process group; waiting methods raise ``why``.

        Thread-safe.
        """
        self._killed = self._killed or why
        if self._process.returncode is None or not _HAS_PROC:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def is_alive(self) -> bool:
        """Whether the program still runs; False after :meth:`kill` with an error."""
        return self._killed is None and self._process.poll() is None

    def wait(self, given: bytes = b"", timeout_s: float | None = None) -> ProgramEnd:
        """Wait until the program ends, or kill it; kill the children it leaves."""
        try:
            self._talk(given, timeout_s)
            return self._ended()
        finally:
            self.close()

    def ask[T](
        self, line: bytes, timeout_s: float | None, parse: Callable[[bytes], T]
    ) -> T:
        """Write a line to standard input, and return the parsed answer."""
        self._errors.clear()
        self._errors_seen = 0
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        if self.is_alive and _is_readable(out) and (early := os.read(out, 65536)):
            raise self._out_of_turn(early)
        self._talk(line + b"\n", timeout_s, until=b"\n")
        answered, newline, more = bytes(self._output).partition(b"\n")
        self._output.clear()
        if not newline:
            end = self._ended()
            why = f"{self._name}: {end.why}"
            raise ProgramError("program: exit", why, is_crash=end.is_crash)
        parsed = parse(answered)
        if more:
            raise self._out_of_turn(more)
        return parsed

    def close(self) -> None:
        """End the program and its children, and close its pipes."""
        self.kill()
        self._process.wait()
        guard.end_marked({self._mark})
        self._watcher.end(self._mark)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _out_of_turn(self, written: bytes) -> ProgramError:
        text = written.decode("utf-8", "replace")
        return ProgramError(
            "program: line",
            f"{self._name} wrote {text!r:.120} to standard output, where only its "
            "answers are read, one line a task: write other output to standard error",
        )

    def _talk(
        self, given: bytes, timeout_s: float | None, until: bytes | None = None
    ) -> None:
        """Write ``given`` and read, until the program ends or writes ``until``."""
        process, output, errors = self._process, self._output, self._errors
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        streams = process.stdin, process.stdout, process.stderr
        to, out, err = (stream.fileno() for stream in streams)
        for number in (to, out, err):
            os.set_blocking(number, False)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        poll.register(to, select.POLLOUT)
        reads = {out, err}
        exit_fd = _exit_descriptor(process.pid)
        if exit_fd is not None:
            poll.register(exit_fd, select.POLLIN)

        def take(number: int) -> bool:
            try:
                data = os.read(number, 65536)
            except BlockingIOError:
                return False
            if not data:
                poll.unregister(number)
                reads.discard(number)
                return False
            if number == out:
                output.extend(data)
            else:
                self._errors_seen += len(data)
                errors.extend(data)
                del errors[:-_SHOWN_ERRORS]
            if len(output) > MOST_OUTPUT or self._errors_seen > _MOST_ERRORS:
                raise ProgramError(
                    TOO_MUCH_OUTPUT,
                    f"{self._name} wrote more than is read: {MOST_OUTPUT >> 20} MB of "
                    f"standard output, {_MOST_ERRORS >> 20} MB of standard error",
                )
            return True

        try:
            while process.poll() is None and (until is None or until not in output):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise ProgramError(
                        "timeout", f"{self._name} came to no end within {timeout_s:g} s"
                    )
                wait_s = left if exit_fd is not None else min(left or 9.0, _POLL_S)
                for number, _ in poll.poll(None if wait_s is None else 1000 * wait_s):
                    if number in reads:
                        take(number)
                    elif number == to:
                        given = _sent(to, given)
                        if not given:
                            poll.unregister(to)
                            if until is None:
                                with suppress(OSError):
                                    process.stdin.close()
            for number in (out, err):
                while number in reads and take(number):
                    pass
        finally:
            if exit_fd is not None:
                os.close(exit_fd)

    def _ended(self) -> ProgramEnd:
        """Return how the program ended; raise ProgramError if it was killed."""
        if self._killed is not None:
            raise self._killed
        code = self._process.returncode
        if code == -signal.SIGKILL and self._over.wait(_LATE_S):
            raise ProgramError(
                "program: memory",
                f"{self._name} and its children held more than {self._memory_mb:,} MB; "
                "the setting agent.program_memory_mb allows more",
            )
        return ProgramEnd(
            exit_code=code,
            output=self._output.decode("utf-8", "replace"),
            errors=self._errors.decode("utf-8", "replace"),
        )


def _is_readable(number: int) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def _exit_descriptor(pid: int) -> int | None:
    """Return a descriptor that is readable when a process ends; None if unsupported."""
    # The end of the output does not show it: a child may keep the pipe open.
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _sent(number: int, given: bytes) -> bytes:
    """Write to a pipe; return the rest, or b"" if the reader has ended."""
    try:
        return given[os.write(number, given[:65536]) :] if given else b""
    except BlockingIOError:
        return given
    except OSError:
        return b""
