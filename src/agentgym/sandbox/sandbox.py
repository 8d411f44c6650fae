"""A pool of zygotes behind one call: files and a command in, a result out."""

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress

from agentgym.errors import SandboxError
from agentgym.sandbox.cache import ResultCache
from agentgym.sandbox.commands import Command, Job, SandboxConfig
from agentgym.sandbox.guest.settings import Rung
from agentgym.sandbox.guest_process import GuestDiedError, GuestProcess
from agentgym.sandbox.ladder import choose_rung
from agentgym.sandbox.noted import noted
from agentgym.sandbox.result import SandboxResult

DEFAULT_TIMEOUT_S = 10.0


class Sandbox(AbstractContextManager["Sandbox"]):
    """Runs untrusted code, one private workspace per execution.

    Open it with :func:`open_sandbox`, as a context manager. It is safe to call from
    several threads and tasks; at most ``config.concurrency`` executions run at a time.

    Attributes:
        config: How it was opened.
        rung: The rung that isolates it.
        restarts: How many zygotes had to be replaced because they died, or because an
            execution left them unfit for the next.
    """

    def __init__(self, config: SandboxConfig, rung: Rung) -> None:
        self.config = config
        self.rung = rung
        self.restarts = 0
        self._owner = os.getpid()
        self._cache = ResultCache(config, rung)
        self._idle: deque[GuestProcess] = deque()
        """Zygotes that wait for work; the most recently used is taken first."""
        self._pool = ThreadPoolExecutor(config.concurrency, "agentgym-sandbox")
        self._finalizer = weakref.finalize(
            self, _shut, self._owner, self._pool, self._idle
        )

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
            timeout_s: Seconds that its processes may compute, together, and that
                all of them may sleep. Waiting for a processor costs nothing, for up
                to 20 times as long.
            collect: Whether to read changed files back.

        Raises:
            SandboxError: A file name or the command is malformed, or the sandbox
                could not be started.
        """
        job = Job(dict(files), command, timeout_s, collect)
        return await asyncio.wrap_future(noted(job, self.config, self._submit(job)))

    def run_sync(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command in a fresh workspace and wait; see :meth:`run`."""
        job = Job(dict(files), command, timeout_s, collect)
        return noted(job, self.config, self._submit(job)).result()

    def _submit(self, job: Job) -> Future[SandboxResult]:
        """Answer from the cache, or hand the job to a thread."""
        if os.getpid() != self._owner:
            raise SandboxError(
                "This sandbox was opened in another process: open one after the fork."
            )
        key = self._cache.key(job)
        if known := self._cache.get(key):
            done: Future[SandboxResult] = Future()
            done.set_result(known)
            return done
        if not self._finalizer.alive:
            raise SandboxError("This sandbox is closed: open a new one.")
        return self._pool.submit(self._work, job, key)

    def _work(self, job: Job, key: bytes | None) -> SandboxResult:
        """Run one job on a zygote, replacing a dead one."""
        try:
            try:
                result = self._attempt(job)
            except GuestDiedError as died:
                if died.started:
                    raise
                result = self._attempt(job)
            else:
                if result.status == "sandbox_error":  # Nothing of it has run yet.
                    result = self._attempt(job, fresh=True)
        except GuestDiedError as died:
            return SandboxResult(
                status="sandbox_error",
                rung=self.rung.name,
                warm=self.config.warm,
                error=f"The sandbox process died: {died}",
            )
        self._cache.put(key, result)
        return result

    def _attempt(self, job: Job, *, fresh: bool = False) -> SandboxResult:
        guest = None if fresh else _take(self._idle)
        while guest and guest.is_stale():
            guest.close()
            guest = _take(self._idle)
        guest = guest or GuestProcess(self.rung, self.config)
        try:
            result = guest.run(job)
        except BaseException:
            self.restarts += 1
            guest.close()
            raise
        if self.config.warm and not guest.spoiled:
            self._idle.append(guest)
        else:
            self.restarts += guest.spoiled
            guest.close()
        return result

    def close(self) -> None:
        """End running executions' zygotes once they are done, and free everything."""
        self._finalizer()

    def __exit__(self, *_: object) -> None:
        self.close()


def _take(idle: deque[GuestProcess]) -> GuestProcess | None:
    with suppress(IndexError):
        return idle.pop()
    return None


def _shut(owner: int, pool: ThreadPoolExecutor, idle: deque[GuestProcess]) -> None:
    """Wait for running executions, drop waiting ones, end the zygotes."""
    if os.getpid() == owner:  # A fork has neither threads nor zygotes.
        pool.shutdown(wait=True, cancel_futures=True)
        while guest := _take(idle):
            guest.close()


def open_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """Open a sandbox on the safest rung that works here.

    Args:
        config: How to open it; the defaults if None.

    Raises:
        SandboxUnavailableError: No rung works; the message says what to install.
    """
    config = config or SandboxConfig()
    return Sandbox(config, choose_rung(config))
