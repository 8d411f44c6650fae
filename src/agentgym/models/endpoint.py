"""EndpointLlm: an OpenAI-compatible server as a model function."""

import asyncio
import logging
from typing import Any

import aiohttp
import orjson

from agentgym.errors import ContextLengthError, ModelCallError, ProviderError
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal
from agentgym.models.retries import is_retried, retry_after, retry_delay

logger = logging.getLogger(__name__)

_ATTEMPTS = 4
_BACKOFF_S = 0.5
_SHOWN = 300
_TOO_LONG = ("context_length_exceeded", "maximum context length")


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
        key = endpoint.api_key
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    async def __call__(
        self, messages: list[dict[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """Return the server's chat completion.

        Raises:
            ProviderError: The server refused the key.
            ContextLengthError: The conversation is longer than the model's context.
            ModelCallError: The server did not answer, or not with a completion.
        """
        body = {"model": self._endpoint.model, "messages": messages, **options}
        status, payload = await self._post(orjson.dumps(body))
        where = self._endpoint.base_url
        text = payload[:_SHOWN].decode(errors="replace")
        if status in KEY_REFUSED:
            raise ProviderError(refusal(where, status, text))
        if status >= 400 and any(mark.encode() in payload for mark in _TOO_LONG):
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

    async def _post(self, data: bytes) -> tuple[int, bytes]:
        url = f"{self._endpoint.base_url}/chat/completions"
        headers = {"Content-Type": "application/json"}
        for attempt in range(_ATTEMPTS):
            last, asked = attempt == _ATTEMPTS - 1, 0.0
            try:
                async with self._http.post(url, data=data, headers=headers) as response:
                    payload = await response.read()
                    if last or not is_retried(response.status):
                        return response.status, payload
                    reason = f"status {response.status}"
                    asked = retry_after(response.headers)
            except aiohttp.ClientError as error:
                reason = f"{type(error).__name__}: {error}"
                if last or isinstance(error, aiohttp.InvalidURL):
                    raise ModelCallError(
                        f"The model server at {self._endpoint.base_url} does not "
                        f"answer ({reason})."
                    ) from None
            delay = retry_delay(_BACKOFF_S, attempt, asked)
            logger.info("%s: %s, trying again in %.1f s", url, reason, delay)
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt returns or raises")
