"""Exact: remove secrets from written records; keep the originals for a while."""

import re
import secrets
import sqlite3
import threading
from typing import Any

import orjson

from agentgym.security.redaction import Redactor

_WHOLE = frozenset({"inner", "parts", "server", "tools"})
"""Fields that are kept with all that they contain."""
_OPENED = frozenset(
    {
        *("choices", "function", "input", "message", "metadata", "reason", "request"),
        *("response", "score", "status", "tool_calls", "usage"),
    }
)
"""Fields whose objects and lists are kept, with those of their fields that may be."""
_LABELS = frozenset(
    {
        *("agent", "charged", "code", "created", "created_at", "duration_ms"),
        *("duration_s", "error_code", "family", "finish_reason", "group"),
        *("http_status", "id", "index", "is_train", "kind", "last_attempt_id"),
        *("latency_ms", "level", "model", "model_version", "name", "outcome", "role"),
        *("right_arguments", "right_tool", "rollout_id", "scenario", "seed", "split"),
        *("state", "status", "step", "success", "tool_choice", "type", "updated_at"),
        *("value", "version", "prompt_tokens", "completion_tokens", "total_tokens"),
    }
)
"""Fields with a name or a number, which are kept."""


def without_texts(record: str) -> str:
    """Return a JSON record with only the names and numbers that are listed above."""
    return orjson.dumps(_opened(orjson.loads(record))).decode()


def _opened(value: Any) -> Any:
    if isinstance(value, list):
        return [_opened(each) for each in value if isinstance(each, dict)]
    kept: dict[str, Any] = {}
    for name, each in value.items():
        if name in _WHOLE:
            kept[name] = each
        elif isinstance(each, dict | list):
            kept |= {name: _opened(each)} if name in _OPENED else {}
        elif name in _LABELS or each is None:
            kept[name] = each
        elif isinstance(each, str):
            kept[name] = ""
    return kept


_MOST = 20_000
_MARKED = re.compile(rb'\{"redacted":"([0-9a-f]+)-([0-9]+)",')


def unmarked(written: bytes) -> bytes:
    """Return an event's JSON without the mark that :class:`Exact` adds."""
    mark = _MARKED.match(written)
    return written if mark is None else b"{" + written[mark.end() :]


class Exact:
    """Removes secrets from written records, and keeps the originals. Thread-safe.

    Training needs the exact tokens, even if they contain a secret. So the newest
    originals stay readable until the store is closed. They are in a temporary database,
    whose file SQLite deletes right after creating it. A record without its secrets
    begins with a mark that identifies its original. With ``goes_on``, unfinished
    rollouts are written with their secrets, because a later process continues them.
    With ``private``, all texts count as secrets, and originals are in memory alone.
    """

    def __init__(self, *, goes_on: bool = False, private: bool = False) -> None:
        self.goes_on = goes_on
        self._private = private
        self._redactor = Redactor.of_environment()
        self._lock = threading.Lock()
        self._session = secrets.token_hex(8)
        self._database: sqlite3.Connection | None = None

    def clean_rollout(self, rollout: str, is_over: bool) -> str:
        """Return a rollout without secrets; unchanged if a process may continue it."""
        as_given = self.goes_on and not is_over
        if self._private and not as_given:
            rollout = without_texts(rollout)
        return rollout if as_given else self._redactor.written(rollout)

    def clean_name(self, name: str) -> str:
        """Remove secrets from an event's type."""
        return self._redactor.text(name)

    def clean(self, raw: bytes) -> bytes:
        """Remove secrets from an event's JSON; keep the original if it had some."""
        text = raw.decode()
        if self._private:
            written = self._redactor.record(without_texts(text))
        else:
            written = self._redactor.record(text)
        if written is text:
            return raw
        with self._lock:
            database = self._opened()
            row = database.execute("INSERT INTO events (raw) VALUES (?)", (raw,))
            number = row.lastrowid or 0
            database.execute("DELETE FROM events WHERE number <= ?", (number - _MOST,))
        return f'{{"redacted":"{self._session}-{number}",{written[1:]}'.encode()

    def restored(self, written: bytes) -> bytes:
        """Return an event's original JSON; ``written`` if it was not kept."""
        mark = _MARKED.match(written)
        if mark and mark[1].decode() == self._session and self._database is not None:
            sql = "SELECT raw FROM events WHERE number = ?"
            with self._lock:
                rows = self._database.execute(sql, (int(mark[2]),)).fetchall()
            if rows:
                raw: bytes = rows[0][0]
                return raw
        return unmarked(written)

    def close(self) -> None:
        """Delete all originals."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            place = ":memory:" if self._private else ""  # a file without a name
            self._database = sqlite3.connect(
                place, isolation_level=None, check_same_thread=False
            )
            self._database.execute(
                "CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, raw)"
            )
        return self._database
