"""Convert JSON values to canonical texts: equal texts mean equal values.

1 and 1.0 are equal, since JavaScript has only one number type. True and 1 differ. A
tuple equals a list.
"""

import json
import math

_DEEPEST = 50
_LONGEST_NUMBER = 4000


def json_text(value: object, depth: int = 0) -> str:
    """Return the canonical text of a JSON value.

    ``depth`` is the number of lists and dicts around the value.

    Raises:
        TypeError: A part of the value cannot be JSON, or more than 50 lists and dicts
            are nested.
    """
    if depth > _DEEPEST:
        raise TypeError(f"it is nested deeper than {_DEEPEST}")
    kind = type(value)
    if value is None or isinstance(value, bool) or kind is str:
        return json.dumps(value)
    if isinstance(value, float) and kind is float:
        if not math.isfinite(value):
            raise TypeError(f"it holds {value}, which JSON has no form for")
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int) and kind is int:
        if abs(value) >= 10**_LONGEST_NUMBER:
            raise TypeError(f"it holds a number of over {_LONGEST_NUMBER} digits")
        return str(value)
    if isinstance(value, list | tuple) and kind in (list, tuple):
        return f"[{', '.join(json_text(item, depth + 1) for item in value)}]"
    if isinstance(value, dict) and kind is dict:
        if any(type(key) is not str for key in value):
            raise TypeError("it has keys that are not texts")
        items = sorted(value.items())
        texts = [
            f"{json.dumps(key)}: {json_text(item, depth + 1)}" for key, item in items
        ]
        return f"{{{', '.join(texts)}}}"
    raise TypeError(f"it holds a {kind.__name__}, which JSON has no form for")


def json_text_of(written: str) -> str | None:
    """Return the canonical text of a JSON text; None if the JSON is invalid."""
    try:
        return json_text(json.loads(written))
    except (ValueError, TypeError, RecursionError):
        return None
