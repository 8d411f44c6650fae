"""ResultCache: keep results of executions in memory, to return them again."""

import hashlib
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import replace

from agentgym.sandbox.commands import Job, SandboxConfig
from agentgym.sandbox.guest.settings import Rung
from agentgym.sandbox.languages import toolchain
from agentgym.sandbox.launch import own_python
from agentgym.sandbox.packages import signature
from agentgym.sandbox.result import SandboxResult
from agentgym.version import __version__

_MOST_FILES = 2_000
"""With more files below ``python_path``, results are not cached: checking the files for
changes would take as long as running again."""
_FRESH_NS = 1_000_000_000
"""Results are not cached for this time (nanoseconds) after a file has changed: the file
could change again and keep the same time stamp."""
_LARGEST_SHARE = 8
_OBJECT_BYTES = 400


class ResultCache:
    """Caches the results of a sandbox's executions; thread-safe."""

    def __init__(self, config: SandboxConfig, rung: Rung) -> None:
        self._config = config
        tools = [toolchain(name) for name in config.languages]
        setting = repr((__version__, sys.version, own_python(), rung, config, tools))
        self._setting = hashlib.sha256(setting.encode()).digest()
        self._results: OrderedDict[bytes, tuple[SandboxResult, int]] = OrderedDict()
        """Results with their sizes in bytes; the most recently used one is last."""
        self._bytes = 0
        self._lock = threading.Lock()

    def key(self, job: Job) -> bytes | None:
        """Return a job's cache key, or None if its result must not be cached.

        It is a hash of the job, the settings and the change times of ``python_path``.
        """
        if not self._config.cache_entries or not self._config.cache_bytes:
            return None
        before_ns = time.time_ns() - _FRESH_NS
        folders = self._config.python_path
        packages = signature(folders, most=_MOST_FILES, before_ns=before_ns)
        if packages is None:
            return None
        return hashlib.sha256(self._setting + packages + job.key).digest()

    def get(self, key: bytes | None) -> SandboxResult | None:
        """Return the result cached under ``key``, or None."""
        with self._lock:
            if key is None or key not in self._results:
                return None
            self._results.move_to_end(key)
            return replace(self._results[key][0], cached=True)

    def put(self, key: bytes | None, result: SandboxResult) -> None:
        """Cache a result under ``key``; drop the least recently used ones if full."""
        # A program that was killed may do better next time.
        size = _size(result)
        most = self._config.cache_bytes
        if key is None or result.status != "exited" or size > most // _LARGEST_SHARE:
            return
        with self._lock:
            _, before = self._results.pop(key, (None, 0))
            self._results[key] = result, size
            self._bytes += size - before
            while len(self._results) > self._config.cache_entries or self._bytes > most:
                self._bytes -= self._results.popitem(last=False)[1][1]


def _size(result: SandboxResult) -> int:
    """Return the approximate memory of a result, in bytes."""
    tests, files = result.tests or (), result.files or {}
    texts = [result.stdout, result.stderr, result.error, *files]
    texts += [text for text in files.values() if text is not None]
    texts += [text for test in tests for text in (test.name, test.message)]
    return sum(map(sys.getsizeof, texts)) + _OBJECT_BYTES * (1 + len(tests))
