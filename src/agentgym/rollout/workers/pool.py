"""WorkerPool: start, watch, replace and end worker processes."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict

from agentgym import errors
from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig
from agentgym.errors import UnsupportedError, UsageError
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.rollout.workers.forks import Child, ForkServer, fork_server
from agentgym.security.files import LogFile
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)


class WorkerSpec(BaseModel):
    """The configuration of a worker, which is a process that runs agents."""

    model_config = ConfigDict(extra="forbid")

    worker: str  # its name in the store
    gateway: str  # base URL
    api_key: str  # of the gateway
    model: str  # name of the policy's model
    scenario: str
    groups: dict[str, dict[str, Any]] = {}  # settings of plug-ins, by name
    framework: str
    agent: AgentSource = AgentSource()
    # The file of a trial's notes; then other machines cannot be reached.
    witness: Path | None = None
    audit: Path | None = None  # file of the audit log
    private: bool = False  # whether the audit log has no texts
    concurrency: int = 64  # episodes that run at the same time
    timeout_s: float = 60.0  # wall-clock seconds after which an episode is ended
    memory_mb: int = 8192  # limit of the address space; larger allocations fail
    unsafe_local_exec: bool = False

    @classmethod
    def of(
        cls,
        config: TrainingConfig,
        *,
        gateway: str,
        api_key: str,
        model: str,
        witness: Path | None = None,
        audit: Path | None = None,
    ) -> Self:
        """Return the workers' configuration, with values from a run's ``config``."""
        return cls(
            worker="worker",
            gateway=gateway,
            api_key=api_key,
            model=model,
            scenario=config.scenario,
            groups=config.plugin_groups,
            framework=config.framework,
            agent=config.agent,
            witness=witness,
            audit=None if audit is None else audit.absolute(),
            private=config.private,
            concurrency=config.in_flight,
            timeout_s=config.timeout_s,
            unsafe_local_exec=config.unsafe_local_exec,
        )


_START_LIMIT_S = 180.0
_SILENCE_FACTOR = 2.0
_MAX_BAD_STARTS = 3
_END_GRACE_S = 1.0
_MAIN = "agentgym.rollout.workers.worker:main"


@dataclass(frozen=True)
class WorkerDeath:
    """The report that a worker ended unexpectedly."""

    worker: str  # its name in the store
    blamed: str | None  # id of the rollout that blocked the worker, if it is known
    reason: str


class _Worker:
    """One worker process, and its state according to its messages."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.name = spec.worker
        self.ready = False
        self.error: str | None = None
        self.kind = ""
        self.agent: dict[str, Any] = {}
        self.blamed: str | None = None
        self.child: Child | None = None
        self._spec = spec

    def run(self, server: ForkServer, errors: int, silence_s: float) -> str:
        """Start the process, read its messages to the end, and return why it ended."""
        try:
            argument = self._spec.model_dump_json()
            self.child = server.fork(_MAIN, argument, errors=errors)
            return self._listen(self.child, silence_s)
        except Exception as error:
            logger.exception("worker %s could not be run", self.name)
            self.ready = False
            self.end(time.monotonic() + _END_GRACE_S)
            return f"{type(error).__name__}: {error}"

    def _listen(self, child: Child, silence_s: float) -> str:
        buffer = b""
        try:
            limit = _START_LIMIT_S
            while data := child.read_some(limit):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._hear(line)
                limit = silence_s if self.ready else _START_LIMIT_S
            return f"exit code {child.wait()}"
        except TimeoutError:
            child.signal(signal.SIGKILL)
            child.wait()
            return f"silent for {limit:.0f} s"
        finally:
            child.close()

    def _hear(self, line: bytes) -> None:
        try:
            said = orjson.loads(line)
        except ValueError:
            return
        if isinstance(said, dict):
            self.ready = self.ready or "ready" in said
            self.error = said.get("error", self.error)
            self.kind = said.get("kind", self.kind)
            self.agent = said.get("agent", self.agent)
            self.blamed = said.get("blocked", self.blamed)

    def end(self, until: float) -> None:
        """Stop the process; kill it if it runs past the monotonic time ``until``."""
        if self.child is not None:
            self.child.end(max(0.0, until - time.monotonic()))


class WorkerPool:
    """Keeps ``count`` worker processes running within a ``with`` block.

    The workers' standard error is written to the file ``log``, without secrets.
    ``on_death`` is called after each unexpected death, in a thread of the pool, before
    the replacement starts.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        count: int,
        log: Path,
        on_death: Callable[[WorkerDeath], None],
    ) -> None:
        self._spec = spec
        self._log_path = log
        self._on_death = on_death
        self._closing = threading.Event()
        self._workers: dict[int, _Worker] = {}
        self._server = fork_server(
            (
                "agentgym.rollout.workers.worker",
                "aiohttp",
                FRAMEWORKS.built_in["command"].partition(":")[0],
                "agentgym.scenarios.tool_tasks.scenario",
                *FRAMEWORKS.get(spec.framework).preload,
            )
        )
        self._bad_starts = 0
        self._last_end = ""
        self._threads = [
            threading.Thread(target=self._keep, args=(slot,), daemon=True)
            for slot in range(count)
        ]

    def __enter__(self) -> Self:
        self._log = LogFile(self._log_path)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        until = time.monotonic() + _END_GRACE_S
        workers = list(self._workers.values())
        for process in workers:
            if process.child is not None:
                process.child.signal(signal.SIGTERM)
        for process in workers:
            process.end(until)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._log.close()
        self._log.wait()

    @property
    def agent(self) -> dict[str, Any]:
        """Facts from a worker about the user's agent; {} before one is ready."""
        said = [worker.agent for worker in list(self._workers.values())]
        return next(filter(None, said), {})

    @property
    def failure(self) -> str | None:
        """Why workers cannot start; None if they can."""
        if self._bad_starts < _MAX_BAD_STARTS:
            return None
        said = [p.error for p in list(self._workers.values()) if p.error]
        if said:
            return said[0]
        return f"they end while starting: {self._last_end}; see {self._log_path}"

    @property
    def refusal(self) -> UsageError | None:
        """The error in the user's settings or agent that ended a worker, if any."""
        for worker in list(self._workers.values()):
            kind = getattr(errors, worker.kind, None)
            if isinstance(kind, type) and issubclass(kind, UsageError):
                is_unsupported = issubclass(kind, UnsupportedError)
                own = UnsupportedError if is_unsupported else UsageError
                return own(worker.error or "")
        return None

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        found = [worker.child for worker in list(self._workers.values())]
        return [child.pid for child in found if child is not None]

    def _keep(self, slot: int) -> None:
        """Run worker number ``slot``; replace it until the pool closes or fails."""
        generation = 0
        while not self._closing.is_set() and self.failure is None:
            name = f"{self._spec.worker}-{slot}.{generation}"
            generation += 1
            spec = self._spec.model_copy(update={"worker": name})
            process = self._workers[slot] = _Worker(spec)
            silence_s = _SILENCE_FACTOR * self._spec.timeout_s
            reason = process.run(self._server, self._log.fileno(), silence_s)
            if self._closing.is_set():
                return
            self._last_end = reason
            if process.ready:
                self._bad_starts = 0
            else:
                self._bad_starts += _MAX_BAD_STARTS if process.error else 1
            logger.warning("worker %s died: %s", name, reason)
            try:
                self._on_death(WorkerDeath(name, process.blamed, reason))
            except Exception:  # the pool goes on if the callback fails
                logger.exception("the death of worker %s was not handled", name)
