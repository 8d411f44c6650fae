"""AnswerCache: answers at temperature 0 that a model's servers gave before."""

import asyncio
import hashlib
import sqlite3
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import orjson

from agentgym.errors import UsageError
from agentgym.security.private import make_private_file
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
_BUSY_S = 5.0
_SPARE, _AT_ONCE = 0.1, 16
_SAME_ANSWER = frozenset({"seed", "user"})
"""Fields that do not change the answer at temperature 0."""


class AnswerCache:
    """Keeps whole answers in an SQLite file, up to a number of bytes.

    A request is the same as another if the model, who answers for it, the path and all
    of the body are the same: messages, tools and how to sample, but for the seed. Only
    those that ask for temperature 0 are looked up and kept. The least recently used
    answers make room. Several processes may share a file.

    Args:
        path: The file; it is made if there is none.
        weights: Who answers and with which weights, as far as that is known: nothing
            is shared between two that differ.
        most_bytes: Of all answers together, compressed.

    Attributes:
        requests: Made so far.
        found: Those that were answered from the file.
        others: Those that did not ask for temperature 0.

    Raises:
        UsageError: The file cannot be used.
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
            with suppress(OSError):  # SQLite explains it
                make_private_file(path)
            self._file = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=OFF")  # lost answers are asked again
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
        """A sentence on the hits and misses."""
        text = (
            f"{self.found:,} of {self.requests:,} requests to the model were answered "
            f"from {self.path}"
        )
        if self.others:
            text += f"; {self.others:,} did not ask for temperature 0 and never are"
        return f"{text}."

    def key(self, path: str, body: Mapping[str, Any]) -> bytes | None:
        """Return the key of a request; None if its answer is not to be kept.

        Args:
            path: That it is sent to, below the server's address.
            body: As it is sent.
        """
        self.requests += 1
        temperature = body.get("temperature")
        if temperature != 0 or isinstance(temperature, bool):
            self.others += 1
            return None
        asked = {k: body[k] for k in sorted(body) if k not in _SAME_ANSWER}
        data = orjson.dumps([self._weights, path, asked | {"temperature": 0}])
        return hashlib.sha256(data).digest()

    @asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[None]:
        """Wait while the same request is under way, so that it is made once."""
        lock = self._turns.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    def get(self, key: bytes) -> bytes | None:
        """Return an answer that was kept, None if there is none."""
        rows = self._run("SELECT answer FROM answers WHERE key = ?", key)
        if not rows:
            return None
        try:
            answer = zlib.decompress(rows[0][0])
        except (zlib.error, TypeError):  # another program wrote into the file
            return None
        self._run("UPDATE answers SET used = ? WHERE key = ?", time.time_ns(), key)
        self.found += 1
        return answer

    def keep(self, key: bytes, answer: bytes) -> None:
        """Keep an answer, if it holds no secret and there is room for it at all."""
        text = answer.decode(errors="replace")
        if Redactor.of_environment().written(text) != text:
            return  # it could not be given back as it was
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
        """Delete the least recently used answers, a tenth more than necessary."""
        with self._lock, self._guarded():
            self._bytes = self._count()
            while self._bytes > self._most * (1 - _SPARE):
                oldest = "SELECT key FROM answers ORDER BY used LIMIT ?"
                sql = f"DELETE FROM answers WHERE key IN ({oldest})"
                self._file.execute(sql, (_AT_ONCE,))
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
        """Go on without the file if it fails."""
        try:
            yield
        except sqlite3.Error as error:
            text = "%s cannot be used (%s): all requests go to the model."
            logger.warning(text, self.path, error)
