"""Asking model servers, and asking again where that may help."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import orjson

from agentgym.core.openai import CONTEXT_LENGTH
from agentgym.errors import ContextLengthError, ModelCallError, ProviderError
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal

logger = logging.getLogger(__name__)

_RETRIED = frozenset({408, 409, 429, *range(500, 600)})
"""HTTP statuses of requests that may succeed later."""

_BACKOFF_S = 0.5
_BACKOFF_CAP_S = 8.0
_RETRY_AFTER_CAP_S = 60.0
_SHOWN = 300
_TOO_LONG = (
    CONTEXT_LENGTH.encode(),
    b"maximum context length",
    b"maximum model length",
)


class HttpClient:
    """Posts JSON over pooled connections; create it inside the running loop.

    Timeouts, broken connections and some statuses are tried again with growing
    waits. A server that asks for a wait (``Retry-After``) is given it, up to a
    minute.

    Args:
        api_key: Bearer key, empty if none is needed.
        tries: Of one request.
        backoff_s: First wait between tries; doubles up to 8 s.
        timeout_s: Of one try; None waits for ever.
    """

    def __init__(
        self,
        *,
        api_key: str = "",
        tries: int = 4,
        backoff_s: float = 0.5,
        timeout_s: float | None = None,
    ) -> None:
        self._tries = tries
        self._backoff_s = backoff_s
        authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"Content-Type": "application/json", **authorization},
        )

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
                if is_last or response.status not in _RETRIED:
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


class EndpointLlm:
    """Asks ``/chat/completions`` of a server; create it inside the running loop.

    Broken connections and statuses 408, 409, 429 and 5xx are tried again a few times
    with growing waits, or the wait that the server asks for. How long a call may take
    is the rollout's affair.

    Args:
        endpoint: The server, the key and the model.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http = HttpClient(api_key=endpoint.api_key, backoff_s=_BACKOFF_S)

    async def __call__(
        self, messages: list[dict[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """Return the server's chat completion.

        Raises:
            ProviderError: The server refused the key.
            ContextLengthError: The conversation is longer than the model's context.
            ModelCallError: The server did not answer, or not with a completion.
        """
        where = self._endpoint.base_url
        body = {"model": self._endpoint.model, "messages": messages, **options}
        try:
            response = await self._http.post(
                f"{where}/chat/completions", orjson.dumps(body)
            )
        except aiohttp.ClientError as error:
            raise ModelCallError(
                f"The model server at {where} does not answer "
                f"({type(error).__name__}: {error})."
            ) from None
        status, payload = response.status, await response.read()
        text = payload[:_SHOWN].decode(errors="replace")
        if status in KEY_REFUSED:
            raise ProviderError(refusal(where, status, text))
        if status >= 400 and overflow_told(payload) is not None:
            raise ContextLengthError(f"{where} answered {status}: {text}")
        if status >= 400:
            raise ModelCallError(f"{where} answered {status}: {text}")
        try:
            answer = orjson.loads(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ModelCallError(f"{where} answered {status}, not JSON: {text!r}")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


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
