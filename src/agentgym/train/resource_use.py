"""Measure time and memory of a run's processes."""

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from agentgym.train.run_state import RunState

if TYPE_CHECKING:
    import psutil

_SAMPLE_S = 1.0
_GROWN = 1.02
"""Growth of a process from which on its memory is measured exactly again."""


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

    It updates ``wall_seconds`` and ``cpu_seconds`` of the run's ``state``, and
    ``peak_memory_mb``, each second, from ``began`` on. Shared memory is counted once.
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
        """Return a process's memory in bytes, its part of shared memory included."""
        import psutil

        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            # Linux adds up every page for this, up to 0.1 s: only after growth.
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
