"""AnswerCache: cache the answers of model servers to requests at temperature 0."""

import asyncio
import hashlib
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import orjson

from agentgym.errors import UsageError
from agentgym.security.files import make_private_file
from agentgym.security.redaction import Redactor, get_logger

logger = get_logger(__name__)

MOST_BYTES = 2**30
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY,
    answer BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    used INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_by_use ON answers (used);
"""
_FORGET = """
DELETE FROM answers WHERE key IN (
    SELECT key FROM (
        SELECT key, sum(bytes) OVER (ORDER BY used DESC) AS kept FROM answers
    ) WHERE kept > ?
);
"""
_BUSY_S = 5.0
_SPARE = 0.1
_SAME_ANSWER = frozenset({"seed", "user"})


class AnswerCache:
    """Stores complete answers in an SQLite file, which several processes may share.

    Only requests at temperature 0 are cached. An answer is used for the same
    ``weights``, path and body; the fields ``seed`` and ``user`` may differ.
    """

    def __init__(
        self, path: Path, weights: str, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self.path = path
        self._weights = weights
        self._most = most_bytes
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()
        self.requests = self.found = self.others = 0
        try:
            with suppress(OSError):  # SQLite reports this error
                make_private_file(path)
            self._file = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=OFF")  # a lost answer is asked again
            self._file.executescript(_SCHEMA)
            self._bytes = self._count()
        except sqlite3.Error as error:
            raise UsageError(
                f"Answers cannot be kept in {path}: {error}. Name a file that such "
                "answers are in, or none yet."
            ) from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    @property
    def summary(self) -> str:
        """A sentence on how many requests were answered from the file."""
        text = (
            f"{self.found:,} of {self.requests:,} requests to the model were answered "
            f"from {self.path}"
        )
        if self.others:
            text += f"; {self.others:,} did not ask for temperature 0 and never are"
        return f"{text}."

    def key(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Count a request; return its cache key, or None if temperature is not 0."""
        self.requests += 1
        temperature = body.get("temperature")
        if temperature != 0 or isinstance(temperature, bool):
            self.others += 1
            return None
        asked = {k: body[k] for k in sorted(body) if k not in _SAME_ANSWER}
        data = orjson.dumps([self._weights, path, asked | {"temperature": 0}])
        return hashlib.sha256(data).digest()

    def turn(self, key: bytes) -> asyncio.Lock:
        """Return a lock: the first of equal requests stores the answer for all."""
        return self._turns.setdefault(key, asyncio.Lock())

    def get(self, key: bytes) -> bytes | None:
        """Return the cached answer; None if there is none."""
        rows = self._run("SELECT answer FROM answers WHERE key = ?", key)
        if not rows:
            return None
        try:
            answer = zlib.decompress(rows[0][0])
        except (zlib.error, TypeError):  # another program wrote to the file
            return None
        self._run("UPDATE answers SET used = ? WHERE key = ?", time.time_ns(), key)
        self.found += 1
        return answer

    def keep(self, key: bytes, answer: bytes) -> None:
        """Cache an answer, unless it contains a secret or is too large."""
        text = answer.decode(errors="replace")
        if Redactor.of_environment().written(text) != text:
            return  # the answer would be stored redacted, and so changed
        packed = zlib.compress(answer, 1)
        size = len(packed)
        if size > self._most:
            return
        row = key, packed, size, time.time_ns()
        self._run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", *row)
        self._bytes += size
        if self._bytes > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Delete the least recently used answers until a tenth of the limit is free."""
        with self._lock, self._guarded():
            self._file.execute(_FORGET, (self._most * (1 - _SPARE),))
            self._bytes = self._count()

    def _count(self) -> int:
        sql = "SELECT coalesce(sum(bytes), 0) FROM answers"
        return int(self._file.execute(sql).fetchone()[0])

    def _run(self, sql: str, *values: Any) -> list[Any]:
        found: list[Any] = []
        with self._lock, self._guarded():
            found += self._file.execute(sql, values)
        return found

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """If SQLite fails in the block, log a warning, and continue without a cache."""
        try:
            yield
        except sqlite3.Error as error:
            text = "%s cannot be used (%s): all requests go to the model."
            logger.warning(text, self.path, error)
