"""RecordCleaner: remove secrets from the records of rollouts and events."""

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


class RecordCleaner:
    """Removes secrets from records before they are written to the database.

    With ``goes_on``, unfinished rollouts are written with their secrets, because a
    later process continues them. With ``private``, all texts count as secrets.
    """

    def __init__(self, *, goes_on: bool = False, private: bool = False) -> None:
        self.goes_on = goes_on
        self._private = private
        self._redactor = Redactor.of_environment()

    def rollout(self, rollout: str, is_over: bool) -> str:
        """Return a rollout without secrets; unchanged if a process may continue it."""
        if self.goes_on and not is_over:
            return rollout
        if self._private:
            rollout = without_texts(rollout)
        return self._redactor.written(rollout)

    def name(self, name: str) -> str:
        """Remove secrets from an event's type."""
        return self._redactor.text(name)

    def event(self, raw: bytes) -> bytes:
        """Remove secrets from an event's JSON; return ``raw`` itself if it has none."""
        text = raw.decode()
        clean = self._redactor.record(without_texts(text) if self._private else text)
        return raw if clean is text else clean.encode()
