"""Remembered results: the same files, command and limits give the same result."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from agentgym.sandbox.result import SandboxResult


@dataclass
class CacheStats:
    """How often a cache had the answer, and how often not."""

    hits: int = 0
    misses: int = 0


class ResultCache:
    """A bounded cache that forgets the least recently used result first.

    It keeps only results of executions that exited by themselves: what a clock or a
    signal ended may end differently next time.

    Args:
        entries: The bound; 0 keeps nothing.

    Attributes:
        stats: How often it was asked.
    """

    def __init__(self, entries: int) -> None:
        self.stats = CacheStats()
        self._entries = entries
        self._results: OrderedDict[bytes, SandboxResult] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> SandboxResult | None:
        """Return the remembered result, marked as cached, or None."""
        with self._lock:
            result = self._results.get(key)
            if result is None:
                self.stats.misses += 1
                return None
            self.stats.hits += 1
            self._results.move_to_end(key)
        return replace(result, cached=True)

    def put(self, key: bytes, result: SandboxResult) -> None:
        """Remember a result, if its kind is kept."""
        if result.status != "exited" or self._entries < 1:
            return
        with self._lock:
            self._results[key] = result
            self._results.move_to_end(key)
            if len(self._results) > self._entries:
                self._results.popitem(last=False)
