"""Wall time, CPU time and memory of a run, its worker processes included."""

import threading
import time
from typing import Self

from agentgym.train.run_folder import RunState

_SAMPLE_S = 1.0


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
