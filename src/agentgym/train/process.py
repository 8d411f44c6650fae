"""What a run is as a process: Ctrl-C, the seconds and the memory it takes, its pace."""

import signal
import threading
import time
from types import FrameType
from typing import Any, NamedTuple, Self

from agentgym.train.run_folder import RunState

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAMPLE_S = 1.0


class InterruptFlag:
    """While entered, the first Ctrl-C or SIGTERM sets a flag; a second ends at once.

    Attributes:
        requested: Whether a signal has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


class Lap(NamedTuple):
    """Wall seconds of a step: its rollouts, its update; and those left of the run."""

    rollouts: float
    update: float
    left: float


class Pace:
    """The clock of a run's steps.

    Args:
        budget: Episodes of the whole run.
        done: Episodes that are done before the clock starts.
    """

    def __init__(self, budget: int, done: int) -> None:
        self._budget = budget
        self._first = done
        self._started = self._began = self._sampled = time.monotonic()

    def begin(self) -> None:
        """A step's rollouts begin."""
        self._began = time.monotonic()

    def sampled(self) -> None:
        """Its rollouts are done, its update begins."""
        self._sampled = time.monotonic()

    def end(self, done: int) -> Lap:
        """The step is over; ``done`` counts the episodes with it."""
        now = time.monotonic()
        each = (now - self._started) / (done - self._first)
        left = each * (self._budget - done)
        return Lap(self._sampled - self._began, now - self._sampled, left)


class ResourceUse:
    """Adds this process tree's use to a state while entered.

    Memory is the resident set of all processes added up, sampled each second; pages
    that they share are counted more than once, so it is an upper bound.

    Args:
        state: ``wall_seconds`` and ``cpu_seconds`` are kept up to date in it.
    """

    def __init__(self, state: RunState) -> None:
        import psutil

        self.peak_memory_mb = 0.0
        self._state = state
        self._process = psutil.Process()
        self._wall = time.monotonic()
        self._ended_cpu = 0.0
        self._children: dict[int, float] = {}
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
        """CPU seconds of this process and of its children, ended ones included."""
        import psutil

        own = self._process.cpu_times()
        resident = self._process.memory_info().rss
        alive: dict[int, float] = {}
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
                alive[child.pid] = times.user + times.system
                resident += child.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self._ended_cpu += sum(
            seconds for pid, seconds in self._children.items() if pid not in alive
        )
        self._children = alive
        self.peak_memory_mb = max(self.peak_memory_mb, resident / 2**20)
        used: float = own.user + own.system + self._ended_cpu + sum(alive.values())
        return used
