"""What a run is as a process: Ctrl-C, and the seconds and memory that it takes."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Self

from agentgym.train.run_folder import RunState

_INSISTS_AFTER_S = 1.5
_SAMPLE_S = 1.0


class InterruptFlag:
    """While entered, the first Ctrl-C or SIGTERM sets a flag; a second ends at once.

    If nobody has heeded the flag some seconds later, that ends it too. SIGTERM is left
    to whoever handles it already.

    Attributes:
        requested: Whether a signal has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self._came: SimpleQueue[None] = SimpleQueue()  # signal handlers may put
        self._old: dict[int, Any] = {}
        self._patience: threading.Timer | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                self._old[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._patience is not None:
            self._patience.cancel()
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Say whether a signal has come, which this takes as heeded; wait for one."""
        try:
            self._came.get(timeout=timeout_s)
        except Empty:
            return False
        if self._patience is not None:
            self._patience.cancel()
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if callable(outer := self._old[signal.SIGINT]):
                outer(number, frame)
            raise KeyboardInterrupt
        self.requested = True
        self._came.put(None)
        main = threading.main_thread().ident
        assert main is not None
        self._patience = threading.Timer(
            _INSISTS_AFTER_S, signal.pthread_kill, (main, signal.SIGINT)
        )
        self._patience.daemon = True
        self._patience.start()


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt at once, as where a user is asked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


class ResourceUse:
    """Adds this process tree's use to a state while entered.

    Memory is that of all processes, sampled each second; pages that some of them share,
    as forked workers do, are counted once (Linux's proportional set size).

    Args:
        state: ``wall_seconds`` and ``cpu_seconds`` are kept up to date in it.
    """

    def __init__(self, state: RunState) -> None:
        import psutil

        self.peak_memory_mb = 0.0
        self._state = state
        self._process = psutil.Process()
        self._wall = time.monotonic()
        self._cpu = self._total_cpu()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def update(self) -> None:
        """Bring the state's seconds up to now."""
        with self._lock:
            wall, cpu = time.monotonic(), self._total_cpu()
            self._state.wall_seconds += wall - self._wall
            self._state.cpu_seconds += cpu - self._cpu
            self._wall, self._cpu = wall, cpu

    def _sample(self) -> None:
        while not self._closing.wait(_SAMPLE_S):
            self.update()

    def _total_cpu(self) -> float:
        """Return the CPU seconds of all processes, ended ones included.

        A process counts those of its children that it has waited for as its own.
        """
        import psutil

        used = resident = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                resident += process.memory_full_info().pss
                used += times.user + times.system
                used += times.children_user + times.children_system
        self.peak_memory_mb = max(self.peak_memory_mb, resident / 2**20)
        return used
