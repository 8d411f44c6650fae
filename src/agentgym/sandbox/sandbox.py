"""Sandbox: run commands on files, isolated from the machine and from each other.

They run in a pool of zygotes: interpreters that fork one process per execution.
"""

import asyncio
import hashlib
import os
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Self

from agentgym.errors import SandboxError
from agentgym.sandbox.commands import (
    Argv,
    Command,
    Job,
    Program,
    PythonScript,
    RunTests,
    SandboxConfig,
    SandboxResult,
)
from agentgym.sandbox.guest.settings import Rung
from agentgym.sandbox.guest_process import GuestDiedError, GuestProcess
from agentgym.sandbox.ladder import choose_rung
from agentgym.sandbox.language import Steps
from agentgym.sandbox.languages import PYTHON, toolchain
from agentgym.sandbox.launch import own_python, signature
from agentgym.security import audit
from agentgym.version import __version__

# With more files below `python_path`, results are not cached: checking the files for
# changes would take as long as running again.
_MOST_CHECKED = 2_000
# Results are not cached for this time (nanoseconds) after a file has changed: the file
# could change again and keep the same time stamp.
_FRESH_NS = 1_000_000_000
_LARGEST_SHARE = 8
_OBJECT_BYTES = 400


class ResultCache:
    """Caches the results of a sandbox's executions; thread-safe."""

    def __init__(self, config: SandboxConfig, rung: Rung) -> None:
        self._config = config
        tools = [toolchain(name) for name in config.languages]
        setting = repr((__version__, sys.version, own_python(), rung, config, tools))
        self._setting = hashlib.sha256(setting.encode()).digest()
        # Results with their sizes in bytes; the most recently used one is last.
        self._results: OrderedDict[bytes, tuple[SandboxResult, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def key(self, job: Job) -> bytes | None:
        """Return a job's cache key, or None if its result must not be cached.

        It is a hash of the job, the settings and the change times of ``python_path``.
        """
        if not self._config.cache_bytes:
            return None
        before_ns = time.time_ns() - _FRESH_NS
        folders = self._config.python_path
        packages = signature(folders, most=_MOST_CHECKED, before_ns=before_ns)
        if packages is None:
            return None
        return hashlib.sha256(self._setting + packages + job.key).digest()

    def get(self, key: bytes | None) -> SandboxResult | None:
        """Return the result cached under ``key``, or None."""
        with self._lock:
            if key is None or key not in self._results:
                return None
            self._results.move_to_end(key)
            return replace(self._results[key][0], cached=True)

    def put(self, key: bytes | None, result: SandboxResult) -> None:
        """Cache a result under ``key``; drop the least recently used ones if full."""
        # A program that was killed may do better next time.
        size = _size(result)
        most = self._config.cache_bytes
        if key is None or result.status != "exited" or size > most // _LARGEST_SHARE:
            return
        with self._lock:
            _, before = self._results.pop(key, (None, 0))
            self._results[key] = result, size
            self._bytes += size - before
            while self._bytes > most:
                self._bytes -= self._results.popitem(last=False)[1][1]


def _size(result: SandboxResult) -> int:
    """Return the approximate memory of a result, in bytes."""
    tests, files = result.tests or (), result.files or {}
    texts = [result.stdout, result.stderr, result.error, *files]
    texts += [text for text in files.values() if text is not None]
    texts += [text for test in tests for text in (test.name, test.message)]
    return sum(map(sys.getsizeof, texts)) + _OBJECT_BYTES * (1 + len(tests))


_MOST_FILES = 50


def note_execution(
    job: Job, config: SandboxConfig, result: SandboxResult | BaseException | None
) -> None:
    """Write the end of an execution to the audit log."""
    if audit.log_or_none() is None:
        return
    facts: dict[str, Any] = {
        "command": audit.head(_words(job)),
        "script": _script(job),
        "sha256": job.key.hex(),
        "files": {
            name: audit.digest(text)
            for name, text in sorted(job.files.items())[:_MOST_FILES]
        },
        "more_files": max(0, len(job.files) - _MOST_FILES) or None,
        "timeout_s": job.timeout_s,
        "limits": dict(vars(config.limits)),
    }
    if not isinstance(result, SandboxResult):
        failed = None if result is None else str(result)
        audit.note("not executed", **facts, error=failed)
        return
    if result.tests is not None:
        facts["tests"] = f"{result.passed} of {len(result.tests)} passed"
    audit.note(
        "executed",
        **facts,
        rung=result.rung,
        status=result.status,
        exit_code=result.exit_code,
        signal=result.signal,
        cpu_s=result.cpu_s,
        wall_s=result.wall_s,
        cached=result.cached or None,
        error=result.error or None,
    )


def _words(job: Job) -> str:
    match job.command:
        case PythonScript(path, args):
            return " ".join(("python", path, *args))
        case Program(path, args):
            return " ".join((path, *args))
        case Steps(chains=chains):
            return "; ".join(" ".join(argv) for chain in chains for argv in chain)
        case Argv(argv):
            return " ".join(argv)
        case RunTests() as tests:
            return " ".join((tests.language, "tests", *tests.paths, *tests.select))


def _script(job: Job) -> str | None:
    """Return the start of the source code that a job runs; None for other commands."""
    match job.command:
        case PythonScript(path) | Program(path):
            return audit.head(job.files[path])
    return None


DEFAULT_TIMEOUT_S = 10.0
_Note = Callable[[SandboxResult | BaseException | None], None]


class _Execution:
    """A running execution, which its caller can end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guest: GuestProcess | None = None
        self.given_up = False

    def moves_to(self, guest: GuestProcess | None) -> None:
        """Set the zygote that runs the execution; end it if the caller has given up."""
        with self._lock:
            self._guest = guest
            if guest and self.given_up:
                guest.interrupt()

    def give_up(self) -> None:
        """End the execution, because the caller has stopped waiting."""
        with self._lock:
            self.given_up = True
            if self._guest:
                self._guest.interrupt()


class _Opened:
    """The zygotes and threads of a sandbox, from its first use until it is closed."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self.rung = choose_rung(config)
        self.owner = os.getpid()
        self.cache = ResultCache(config, self.rung)
        # Idle zygotes; the most recently used one is taken first.
        self.idle: deque[GuestProcess] = deque()
        self.running: set[_Execution] = set()
        self.pool = ThreadPoolExecutor(config.concurrency, "agentgym-sandbox")
        self.close = weakref.finalize(self, _shut, self.owner, self.pool, self.idle)


class Sandbox(AbstractContextManager["Sandbox"]):
    """Runs untrusted code, with a private workspace for each execution.

    It opens when it is first used, or as a context manager, with the safest kind of
    isolation that works on this machine; after :meth:`close` it opens again. It is
    thread-safe; at most ``config.concurrency`` executions run at the same time.

    Args:
        config: The settings, or a function that returns them, called each time the
            sandbox opens. None for the defaults.

    Attributes:
        restarts: Number of zygotes (interpreters that fork executions) that were closed
            because they died or became unusable.
    """

    def __init__(
        self, config: SandboxConfig | Callable[[], SandboxConfig] | None = None
    ) -> None:
        self._settings = config
        self.restarts = 0
        self._lock = threading.Lock()
        self._now: _Opened | None = None

    @property
    def config(self) -> SandboxConfig:
        """The settings of the open sandbox."""
        return self._opened().config

    @property
    def rung(self) -> Rung:
        """The kind of isolation."""
        return self._opened().rung

    def _opened(self) -> _Opened:
        with self._lock:
            if self._now is None:
                given = self._settings
                config = given() if callable(given) else given or SandboxConfig()
                self._now = _Opened(config)
            return self._now

    def open(self) -> Self:
        """Open the sandbox now, not at its first use.

        Raises:
            SandboxUnavailableError: Isolation does not work, or a language is not
                installed; the message names the packages to install.
        """
        self._opened()
        return self

    async def run(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command in a new workspace, and return its result.

        If the code crashes, hangs or exceeds a limit, the result says so, and this
        method does not raise. Cancelling the call ends the execution at once.

        Args:
            files: The texts of the workspace's files, by relative path.
            command: The command to run.
            timeout_s: Time limit in seconds, for the CPU time of all processes plus the
                time in which all of them sleep. Waiting for a CPU does not count, but
                an execution always ends after a wall time of about 20 times the limit.
            collect: Whether the result includes the changed files.

        Raises:
            SandboxError: A file, the command or the time limit is invalid, or the
                sandbox is closed or could not be started.
        """
        job = Job(dict(files), command, timeout_s, collect)
        execution = _Execution()
        try:
            return await asyncio.wrap_future(self._submit(job, execution))
        except asyncio.CancelledError:
            execution.give_up()
            raise

    def run_sync(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command like :meth:`run`, and wait for its result."""
        job = Job(dict(files), command, timeout_s, collect)
        execution = _Execution()
        try:
            return self._submit(job, execution).result()
        except BaseException:  # e.g. KeyboardInterrupt
            execution.give_up()
            raise

    def _submit(self, job: Job, execution: _Execution) -> Future[SandboxResult]:
        """Return a future of a job's result, from the cache or a new execution."""
        here = self._opened()
        if os.getpid() != here.owner:
            raise SandboxError(
                "This sandbox was opened in another process: open one after the fork."
            )
        if job.language not in (PYTHON, *here.config.languages):
            raise SandboxError(
                f"This sandbox was opened without {job.language}: open it with "
                f"SandboxConfig(languages=({job.language!r},))."
            )
        key = here.cache.key(job)
        context = copy_context()  # with the caller's name, for any thread

        def note(result: SandboxResult | BaseException | None) -> None:
            context.run(note_execution, job, here.config, result)

        def note_cancelled(done: Future[SandboxResult]) -> None:
            if done.cancelled():
                note(None)

        if known := here.cache.get(key):
            note(known)
            done: Future[SandboxResult] = Future()
            done.set_result(known)
            return done
        try:
            result = here.pool.submit(self._work, here, job, key, execution, note)
        except RuntimeError as error:  # Just closed, or no thread can be started.
            raise SandboxError(f"The sandbox cannot run this: {error}") from error
        result.add_done_callback(note_cancelled)
        return result

    def _work(
        self,
        here: _Opened,
        job: Job,
        key: bytes | None,
        execution: _Execution,
        note: _Note,
    ) -> SandboxResult:
        here.running.add(execution)
        try:
            if not here.close.alive:
                raise SandboxError("This sandbox was closed before it began to run.")
            result = self._result(here, job, execution)
        except BaseException as error:
            note(error)
            raise
        finally:
            here.running.discard(execution)
        note(result)
        here.cache.put(key, result)
        return result

    def _result(self, here: _Opened, job: Job, execution: _Execution) -> SandboxResult:
        """Run a job, and return its result; try a second time if it could not begin."""
        try:
            try:
                result = self._attempt(here, job, execution)
            except GuestDiedError as died:
                if died.started or execution.given_up:
                    raise
                result = self._attempt(here, job, execution)
            else:
                if result.status == "sandbox_error":  # The program has not run yet.
                    result = self._attempt(here, job, execution, fresh=True)
        except GuestDiedError as died:
            why = f"The sandbox process died: {died}"
            return SandboxResult(
                status="sandbox_error",
                rung=here.rung.name,
                warm=here.config.warm,
                error="The caller cancelled it." if execution.given_up else why,
            )
        except OSError as error:
            raise SandboxError(f"The sandbox could not run this: {error}") from error
        return result

    def _attempt(
        self, here: _Opened, job: Job, execution: _Execution, *, fresh: bool = False
    ) -> SandboxResult:
        guest = None if fresh else _take(here.idle)
        while guest and guest.is_stale():
            guest.close()
            guest = _take(here.idle)
        guest = guest or GuestProcess(here.rung, here.config)
        execution.moves_to(guest)
        try:
            result = guest.run(job)
        except BaseException:
            self.restarts += 1
            guest.close()
            raise
        finally:
            execution.moves_to(None)
        if here.config.warm and not guest.spoiled:
            here.idle.append(guest)
        else:
            self.restarts += guest.spoiled
            guest.close()
        return result

    def close(self) -> None:
        """Wait for running executions, and end all processes of the sandbox.

        Executions that have not begun do not run; their callers get a ``SandboxError``.
        """
        with self._lock:
            opened, self._now = self._now, None
        if opened is not None:
            opened.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self._now is not None:
            for execution in [*self._now.running]:
                execution.give_up()  # After an error, do not wait for them.
        self.close()


def _take(idle: deque[GuestProcess]) -> GuestProcess | None:
    with suppress(IndexError):
        return idle.pop()
    return None


def _shut(owner: int, pool: ThreadPoolExecutor, idle: deque[GuestProcess]) -> None:
    """Close a sandbox; do nothing in a fork of the process that opened it."""
    if os.getpid() == owner:  # A fork has neither threads nor zygotes.
        pool.shutdown(wait=True)
        while guest := _take(idle):
            guest.close()
