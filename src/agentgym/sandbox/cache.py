"""Remembered results: the same files, command and limits give the same result."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentgym.sandbox.result import SandboxResult


@dataclass(frozen=True)
class CacheStats:
    """How often the cache was asked.

    Attributes:
        hits: Answered from memory.
        misses: Had to be executed.
    """

    hits: int
    misses: int


class ResultCache:
    """A bounded cache that forgets the least recently used result first.

    It keeps only results of executions that exited by themselves: what a clock or a
    signal ended may end differently next time.

    Args:
        entries: The bound; 0 keeps nothing.
    """

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._results: OrderedDict[str, SandboxResult] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    @staticmethod
    def key(files: Mapping[str, str], *context: object) -> str:
        """Return the hash of a workspace and of JSON-compatible context."""
        text = json.dumps([sorted(files.items()), *context], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def get(self, key: str) -> SandboxResult | None:
        """Return the remembered result, marked as cached, or None."""
        with self._lock:
            result = self._results.get(key)
            if result is None:
                self._misses += 1
                return None
            self._hits += 1
            self._results.move_to_end(key)
        return replace(result, cached=True)

    def put(self, key: str, result: SandboxResult) -> None:
        """Remember a result, if its kind is kept."""
        if result.status != "exited" or self._entries < 1:
            return
        with self._lock:
            self._results[key] = result
            self._results.move_to_end(key)
            if len(self._results) > self._entries:
                self._results.popitem(last=False)

    def stats(self) -> CacheStats:
        """Return the counters."""
        with self._lock:
            return CacheStats(self._hits, self._misses)
