"""Handle a run's process: Ctrl-C, and the seconds and memory that it takes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Self

from agentgym.errors import Interrupted
from agentgym.train.run_folder import RunState

_INSISTS_AFTER_S = 1.5
_SAMPLE_S = 1.0


class InterruptFlag:
    """While entered, the first Ctrl-C or SIGTERM sets a flag; a second ends at once.

    If no code has checked the flag some seconds later, that ends it too. An existing
    handler of SIGTERM is kept.

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


class DeferredSignals:
    """Ctrl-C, SIGTERM and SIGHUP as KeyboardInterrupt, but not at every moment.

    For work that must be finished first, such as ending a rented machine.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}
        self._came = 0
        self._patience: int | None = None
        self._doing = ""
        self._given_up = ""
        self._is_own = False
        self._outer: Any = None

    @property
    def can_interrupt(self) -> bool:
        """Whether the block runs where signals arrive."""
        return bool(self._old)

    def install(self) -> None:
        """Handle them, where that can be done."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Handle them no more."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def give_on(self) -> None:
        """Call the earlier handler of SIGTERM, if the signal came."""
        outer, self._outer = self._outer, None
        if callable(outer):
            outer(signal.SIGTERM, None)

    def interrupt(self) -> None:
        """Interrupt the block, also where it would take Ctrl-C for a request."""
        main = threading.main_thread().ident
        number = signal.SIGTERM if signal.SIGTERM in self._old else signal.SIGINT
        if main is not None and number in self._old:
            self._is_own = True
            signal.pthread_kill(main, number)

    @contextmanager
    def deferred(
        self, doing: str, given_up: str = "", patience: int | None = None
    ) -> Iterator[None]:
        """Let signals wait for the end of the block, and interrupt there.

        With ``patience`` they do not, but so many of them end the block.

        Args:
            doing: The work that they wait for, in words.
            given_up: Message if the work is given up.
            patience: How many do not wait.

        Raises:
            Interrupted: So many came.
        """
        self._doing, self._given_up = doing, given_up
        self._patience, self._came = patience, 0
        try:
            yield
        finally:
            self._doing = ""
        if self._came and patience is None:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came += 1
        if number == signal.SIGTERM and not self._is_own:
            self._outer = self._old.get(number)
        self._is_own = False
        if not self._doing:
            raise KeyboardInterrupt
        text = f"Interrupted. {self._doing}"
        if self._patience is not None:
            if self._came >= self._patience:
                raise Interrupted(self._given_up)
            text += f"; {self._patience - self._came} more to give that up"
        with suppress(OSError):  # the terminal may be gone
            os.write(2, f"{text}.\n".encode())


class ResourceUse:
    """Adds this process tree's use to a state while entered.

    Memory is that of all processes, sampled each second; pages that some of them share,
    as forked workers do, are counted once (Linux's proportional set size).

    Args:
        state: ``wall_seconds`` and ``cpu_seconds`` are kept up to date in it.
        began: From when on wall seconds count, by ``time.monotonic()``; None: now.
    """

    def __init__(self, state: RunState, began: float | None = None) -> None:
        import psutil

        self.peak_memory_mb = 0.0
        self._state = state
        self._process = psutil.Process()
        self._wall = time.monotonic() if began is None else began
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
