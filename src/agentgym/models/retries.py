"""When a request to a model server is tried again, and after how long."""

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_RETRIED_STATUS = frozenset({408, 409, 429})
_BACKOFF_CAP_S = 8.0
_RETRY_AFTER_CAP_S = 60.0


def is_retried(status: int) -> bool:
    """Say whether a request with this HTTP status may succeed later."""
    return status in _RETRIED_STATUS or status >= 500


def retry_delay(first_s: float, attempt: int, asked_s: float = 0.0) -> float:
    """Return the seconds to wait before the next try.

    It doubles with each try up to 8 s; a wait that the server asked for is kept up
    to a minute. A random part keeps many clients from coming back together.

    Args:
        first_s: Wait after the first try.
        attempt: Tries before the one that failed last.
        asked_s: What :func:`retry_after` returned.
    """
    delay = min(first_s * 2.0**attempt, _BACKOFF_CAP_S)
    return max(delay, min(asked_s, _RETRY_AFTER_CAP_S)) * random.uniform(1.0, 1.25)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait; 0 if it does not say."""
    said = headers.get("Retry-After", "")
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(said).timestamp()
    except (ValueError, TypeError):
        return 0.0
    return max(0.0, until - time.time())
