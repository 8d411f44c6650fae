"""Handle Ctrl-C in a run's process, and measure its CPU time and memory."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from agentgym.errors import Interrupted
from agentgym.train.run_folder import RunState

if TYPE_CHECKING:
    import psutil

_INSISTS_AFTER_S = 1.5
_SAMPLE_S = 1.0
_GROWN = 1.02
"""Growth of a process from which on its memory is measured exactly again."""


class InterruptFlag:
    """Sets a flag at the first Ctrl-C or SIGTERM; raises KeyboardInterrupt at a second.

    Works within its ``with`` block. If the block has not ended 1.5 seconds after the
    first signal, KeyboardInterrupt is raised too; a call of :meth:`wait` that returns
    the signal prevents this. An existing handler of SIGTERM is kept.
    """

    def __init__(self) -> None:
        self.requested = False
        self._came: SimpleQueue[None] = SimpleQueue()  # signal handlers may call put
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
        """Wait for a signal; return whether one has come before the timeout.

        The caller then handles this signal; it does not raise KeyboardInterrupt later.
        """
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
    """Make Ctrl-C raise KeyboardInterrupt at once within the block.

    Used while the user is asked a question.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


class DeferredSignals:
    """Raises KeyboardInterrupt for Ctrl-C, SIGTERM and SIGHUP; can delay it.

    The delay is for work that must be finished, such as ending a rented machine.
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
    def has_come(self) -> bool:
        """Whether a signal came since the last :meth:`deferred` block began."""
        return self._came > 0

    def install(self) -> None:
        """Install the signal handlers; do nothing outside of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the signal handlers from before :meth:`install`."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def give_on(self) -> None:
        """Call the handler that SIGTERM had before :meth:`install`.

        Do nothing if no SIGTERM was received.
        """
        outer, self._outer = self._outer, None
        if callable(outer):
            outer(signal.SIGTERM, None)

    def interrupt(self) -> None:
        """Interrupt the main thread from another thread, by SIGTERM if possible.

        Code that only records a Ctrl-C, to handle it later, is interrupted too.
        """
        main = threading.main_thread().ident
        number = signal.SIGTERM if signal.SIGTERM in self._old else signal.SIGINT
        if main is not None and number in self._old:
            self._is_own = True
            signal.pthread_kill(main, number)

    @contextmanager
    def deferred(
        self, doing: str, given_up: str = "", patience: int | None = None
    ) -> Iterator[None]:
        """Delay signals until the end of the block.

        When a signal comes, ``doing`` is printed, which describes the work in the
        block. With ``patience``, this many signals interrupt the block itself, with the
        message ``given_up``; fewer signals have no further effect. Without
        ``patience``, the block is never interrupted.
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


class Began(NamedTuple):
    """When a run began.

    Attributes:
        wall: Value of ``time.monotonic()``.
        cpu: CPU seconds of this process and its children until then.
    """

    wall: float
    cpu: float = 0.0

    @classmethod
    def now(cls) -> Self:
        """Return a run's beginning at this moment."""
        return cls(time.monotonic(), sum(map(_cpu_seconds, _processes())))


class ResourceUse:
    """Measures time and memory of this process and its children in a ``with`` block.

    Each second, it updates ``wall_seconds`` and ``cpu_seconds`` of the run's ``state``,
    and ``peak_memory_mb``. Both count from ``began``. Memory that several processes
    share is counted once (Linux's proportional set size).
    """

    def __init__(self, state: RunState, began: Began) -> None:
        self.peak_memory_mb = 0.0
        self._state = state
        self._wall, self._cpu = began
        self._memory: dict[int, tuple[int, int]] = {}
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
        """Add the time since the last update to the state's seconds."""
        with self._lock:
            found = _processes()
            wall, cpu = time.monotonic(), sum(map(_cpu_seconds, found))
            self._state.wall_seconds += wall - self._wall
            self._state.cpu_seconds += cpu - self._cpu
            self._wall, self._cpu = wall, cpu
            resident = sum(map(self._resident, found)) / 2**20
            self.peak_memory_mb = max(self.peak_memory_mb, resident)

    def _sample(self) -> None:
        while not self._closing.wait(_SAMPLE_S):
            self.update()

    def _resident(self, process: "psutil.Process") -> int:
        """Return the memory of a process in bytes, its part of shared memory included.

        Linux adds up every page for this, which takes up to 0.1 s. So the last value is
        returned until the process has grown.
        """
        import psutil

        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            mapped = process.memory_info().rss
            if mapped > _GROWN * self._memory.get(process.pid, (0, 0))[0]:
                own = process.memory_full_info().pss
                self._memory[process.pid] = mapped, own
            return min(mapped, self._memory.get(process.pid, (0, 0))[1])
        return 0


def _processes() -> "list[psutil.Process]":
    """Return this process and all of its children."""
    import psutil

    process = psutil.Process()
    return [process, *process.children(recursive=True)]


def _cpu_seconds(process: "psutil.Process") -> float:
    """Return the CPU seconds of a process, and of its children that have ended.

    The operating system adds the time of an ended child to its parent's.
    """
    import psutil

    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        times = process.cpu_times()
        return float(sum(times[:4]))
    return 0.0
