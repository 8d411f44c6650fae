"""Remembered results: the same files, command and limits give the same result."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from agentgym.sandbox.commands import Job
from agentgym.sandbox.result import SandboxResult


@dataclass
class CacheStats:
    """How often a cache had the answer, and how often not."""

    hits: int = 0
    misses: int = 0


class ResultCache:
    """A bounded cache that forgets the least recently used result first.

    It keeps only results of executions that exited by themselves: what a clock or a
    signal ended may end differently next time. A bound of 0 keeps nothing.
    """

    def __init__(self, entries: int) -> None:
        self.stats = CacheStats()
        self._entries = entries
        self._results: OrderedDict[bytes, SandboxResult] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, job: Job) -> SandboxResult | None:
        """Return the remembered result, marked as cached, or None."""
        if not self._entries:
            return None
        with self._lock:
            result = self._results.get(job.key)
            if result is None:
                self.stats.misses += 1
                return None
            self.stats.hits += 1
            self._results.move_to_end(job.key)
        return replace(result, cached=True)

    def put(self, job: Job, result: SandboxResult) -> None:
        """Remember a result, if its kind is kept."""
        if not self._entries or result.status != "exited":
            return
        with self._lock:
            self._results[job.key] = result
            self._results.move_to_end(job.key)
            if len(self._results) > self._entries:
                self._results.popitem(last=False)
