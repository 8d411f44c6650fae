"""A pool of zygotes behind one call: files and a command in, a result out."""

import asyncio
import json
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from agentgym.errors import SandboxError
from agentgym.sandbox import commands, report
from agentgym.sandbox.cache import CacheStats, ResultCache
from agentgym.sandbox.commands import Command, RunTests
from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.guest_process import GuestDiedError, GuestProcess
from agentgym.sandbox.ladder import choose_rung
from agentgym.sandbox.result import SandboxResult
from agentgym.sandbox.rungs import Rung

DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class _Job:
    """One execution to do."""

    files: Mapping[str, str]
    command: Command
    encoded: dict[str, object]
    timeout_s: float
    collect: bool


class _Idle:
    """The zygotes that wait for work; the most recently used is taken first."""

    def __init__(self) -> None:
        self._guests: list[GuestProcess] = []
        self._lock = threading.Lock()

    def take(self) -> GuestProcess | None:
        """Return a waiting zygote, if there is one."""
        with self._lock:
            return self._guests.pop() if self._guests else None

    def give(self, guest: GuestProcess) -> None:
        """Put one back."""
        with self._lock:
            self._guests.append(guest)

    def close(self) -> None:
        """End all of them."""
        while guest := self.take():
            guest.close()


class Sandbox:
    """Runs untrusted code, one private workspace per execution.

    Open it with :func:`open_sandbox`, as a context manager. It is safe to call from
    several threads and tasks; at most ``config.concurrency`` executions run at a time.

    Attributes:
        config: How it was opened.
        rung: The rung that isolates it.
    """

    def __init__(self, config: SandboxConfig, rung: Rung) -> None:
        self.config = config
        self.rung = rung
        self._owner = os.getpid()
        self._cache = ResultCache(config.cache_entries)
        self._idle = _Idle()
        self._restarts = 0
        self._pool = ThreadPoolExecutor(config.concurrency, "agentgym-sandbox")
        self._finalizer = weakref.finalize(self, _shut, self._pool, self._idle)

    @property
    def cache_stats(self) -> CacheStats:
        """Hits and misses of the result cache."""
        return self._cache.stats()

    @property
    def restarts(self) -> int:
        """How many zygotes had to be replaced because they died."""
        return self._restarts

    async def run(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command in a fresh workspace.

        Whatever the code does (crash, hang, exhaust its limits), this returns a
        result that says so.

        Args:
            files: The workspace: relative path to text.
            command: What to run.
            timeout_s: Wall-clock limit in seconds.
            collect: Whether to read changed files back.

        Raises:
            SandboxError: A file name or the command is malformed, or the sandbox
                could not be started.
        """
        return await asyncio.wrap_future(
            self._submit(files, command, timeout_s, collect)
        )

    def run_sync(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command in a fresh workspace and wait; see :meth:`run`."""
        return self._submit(files, command, timeout_s, collect).result()

    def _submit(
        self,
        files: Mapping[str, str],
        command: Command,
        timeout_s: float,
        collect: bool,
    ) -> Future[SandboxResult]:
        """Answer from the cache, or hand the job to a thread."""
        if os.getpid() != self._owner:
            raise SandboxError(
                "This sandbox was opened in another process: open one after the fork."
            )
        commands.check_files(files)
        encoded = commands.encode(command, files)
        job = _Job(dict(files), command, encoded, timeout_s, collect)
        key = ""
        if self.config.cache_entries:
            limits = asdict(self.config.limits)
            key = self._cache.key(files, encoded, limits, timeout_s, collect)
            known = self._cache.get(key)
            if known is not None:
                done: Future[SandboxResult] = Future()
                done.set_result(known)
                return done
        if not self._finalizer.alive:
            raise SandboxError("This sandbox is closed: open a new one.")
        return self._pool.submit(self._work, job, key)

    def _work(self, job: _Job, key: str) -> SandboxResult:
        """Run one job on a zygote, replacing a dead one."""
        try:
            try:
                result = self._attempt(job)
            except GuestDiedError as died:
                if died.started:
                    raise
                result = self._attempt(job)
        except GuestDiedError as died:
            return SandboxResult(
                status="sandbox_error",
                rung=self.rung.name,
                warm=self.config.warm,
                error=f"The sandbox process died: {died}",
            )
        if key:
            self._cache.put(key, result)
        return result

    def _attempt(self, job: _Job) -> SandboxResult:
        """Run one job on one zygote."""
        limits = self.config.limits
        guest = self._idle.take() or GuestProcess(self.rung, self.config)
        healthy = False
        try:
            payload = {"files": job.files, "command": job.encoded, "env": guest.env}
            raw = guest.execute(
                json.dumps(payload).encode(),
                limits=limits.as_rlimits(
                    job.timeout_s, count_processes=self.rung.counts_processes
                ),
                timeout_s=job.timeout_s,
                total_memory_mb=limits.total_memory_mb,
                output_bytes=limits.output_bytes,
                collect_bytes=limits.collect_bytes if job.collect else 0,
            )
            healthy = True
        finally:
            if healthy and self.config.warm:
                self._idle.give(guest)
            else:
                self._restarts += not healthy
                guest.close()
        return report.decode(
            raw,
            files=job.files,
            tests=isinstance(job.command, RunTests),
            collect=job.collect,
            rung=self.rung.name,
            warm=self.config.warm,
        )

    def close(self) -> None:
        """End running executions' zygotes once they are done, and free everything."""
        if os.getpid() == self._owner:
            self._finalizer()
        else:
            self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)


def _shut(pool: ThreadPoolExecutor, idle: _Idle) -> None:
    """Wait for running executions, drop waiting ones, end the zygotes."""
    pool.shutdown(wait=True, cancel_futures=True)
    idle.close()


def open_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """Open a sandbox on the safest rung that works here.

    Args:
        config: How to open it; the defaults if None.

    Raises:
        SandboxUnavailableError: No rung works; the message says what to install.
    """
    config = config or SandboxConfig()
    return Sandbox(config, choose_rung(config))
