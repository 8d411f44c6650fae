"""HttpClient: asks model servers, and asks again where that may help."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from email.utils import parsedate_to_datetime
from typing import Self

import aiohttp
import orjson

from agentgym.core.openai import CONTEXT_LENGTH

logger = logging.getLogger(__name__)

RETRIED = frozenset({408, 409, 429, *range(500, 600)})
"""HTTP statuses of requests that may succeed later."""

_BACKOFF_CAP_S = 8.0
_RETRY_AFTER_CAP_S = 60.0
_SHOWN = 300
_TOO_LONG = (CONTEXT_LENGTH.encode(), b"maximum context length")


class HttpClient:
    """Posts JSON over pooled connections; create it inside the running loop.

    Timeouts, broken connections and some statuses are tried again with growing
    waits. A server that asks for a wait (``Retry-After``) is given it, up to a
    minute.

    Args:
        base_url: What the paths of requests are below, if they are no whole URLs.
        api_key: Bearer key, empty if none is needed.
        tries: Of one request.
        backoff_s: First wait between tries; doubles up to 8 s.
        timeout_s: Of one try; None waits for ever.
        retried: HTTP statuses that are tried again.
        connections: Most of them at a time; 0 is no limit.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str = "",
        tries: int = 4,
        backoff_s: float = 0.5,
        timeout_s: float | None = None,
        retried: Collection[int] = RETRIED,
        connections: int = 0,
    ) -> None:
        self._tries = tries
        self._backoff_s = backoff_s
        self._retried = retried
        authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session = aiohttp.ClientSession(
            base_url,
            connector=aiohttp.TCPConnector(limit=connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"Content-Type": "application/json", **authorization},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def post(
        self,
        url: str,
        data: bytes,
        *,
        stream: bool = False,
        on_retry: Callable[[str], None] = logger.info,
    ) -> aiohttp.ClientResponse:
        """Send until the server answers, or the tries are used up.

        Args:
            url: Where to.
            data: The body.
            stream: Return once the answer begins; otherwise it has been read whole.
            on_retry: Told, before each further try, what went wrong with the last.

        Raises:
            aiohttp.ClientError: There was no whole answer.
            TimeoutError: It did not come in time.
        """
        for attempt in range(self._tries):
            is_last, asked = attempt == self._tries - 1, 0.0
            try:
                response = await self._session.post(url, data=data)
                if is_last or response.status not in self._retried:
                    if not stream:
                        await response.read()
                    return response
                response.release()
                reason = f"status {response.status}"
                asked = _retry_after(response.headers)
            except (aiohttp.ClientError, TimeoutError) as error:
                if is_last or isinstance(error, aiohttp.InvalidURL):
                    raise
                reason = f"{type(error).__name__}: {error}"
            delay = max(
                min(self._backoff_s * 2.0**attempt, _BACKOFF_CAP_S),
                min(asked, _RETRY_AFTER_CAP_S),
            )
            delay *= random.uniform(1.0, 1.25)  # many clients shall not come at once
            on_retry(f"{url}: {reason}, trying again in {delay:.2f} s")
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last try returns or raises")


def overflow_told(body: bytes) -> str | None:
    """Return what a server says of a prompt longer than its model's context.

    Args:
        body: Of a refusal; None is returned if it is about something else.
    """
    if not any(mark in body for mark in _TOO_LONG):
        return None
    try:
        said = orjson.loads(body)
    except ValueError:
        said = None
    said = said.get("error", said) if isinstance(said, dict) else None
    said = said.get("message") if isinstance(said, dict) else said
    return str(said or body[:_SHOWN].decode(errors="replace"))


def _retry_after(headers: Mapping[str, str]) -> float:
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
