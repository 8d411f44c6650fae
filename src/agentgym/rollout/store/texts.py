"""Remove all texts from records, for runs whose setting ``private`` is true."""

from typing import Any

import orjson

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
    """Return a JSON record with only the names and numbers that are listed above.

    All other fields are left out, or become empty if they are texts.
    """
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
