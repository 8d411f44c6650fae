"""EndpointLlm: call the chat completions of an endpoint's servers, with retries."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import aiohttp
import orjson

from agentgym.core.openai import Completion
from agentgym.errors import ContextLengthError, ModelCallError, ProviderError
from agentgym.models.answers import AnswerCache
from agentgym.models.http import (
    ModelClient,
    Replicas,
    ServerAttempts,
    failure_message,
    overflow_message,
)
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal
from agentgym.security.redaction import beginning, get_logger

logger = get_logger(__name__)

_BACKOFF_S = 0.5
_SHOWN = 300
_PATH = "chat/completions"


class EndpointLlm:
    """Calls chat completions of a model's servers, with retries; create it in a loop.

    ``on_retry`` may raise an error to stop. A call has no timeout: the rollout limits
    its time.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        cache: AnswerCache | None = None,
        on_retry: Callable[[str], None] = logger.info,
    ) -> None:
        self._endpoint = endpoint
        self._on_retry = on_retry
        self._cache = cache
        self._replicas = Replicas(endpoint.servers, endpoint.model, endpoint.api_key)
        self._client = ModelClient(backoff_s=_BACKOFF_S)

    async def __call__(
        self, messages: list[dict[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """Return a server's chat completion for these messages, or the cached one."""
        body = {"model": self._endpoint.model, "messages": messages, **options}
        cache = self._cache
        key = None if cache is None else cache.key(_PATH, body)
        if cache is None or key is None:
            return (await self._asked(body))[1]
        async with cache.turn(key):
            if kept := _parsed(cache.get(key)):
                return kept
            payload, answer = await self._asked(body)
            if Completion(answer).problem is None:
                cache.keep(key, payload)
            return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _asked(self, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """Call the servers; return the raw answer and its parsed JSON."""
        messages = body["messages"]
        data = orjson.dumps(body)
        session = blake2b(orjson.dumps(messages[:2]), digest_size=8).hexdigest()
        tries = ServerAttempts(self._client, session, self._on_retry)
        where = self._endpoint.description
        try:
            async for attempt in tries:
                async with attempt.at(self._replicas) as server:
                    where = server.url
                    response = await attempt.post(_PATH, data)
                    payload = await response.read()
                    if response.status < 400:
                        attempt.end(_problem(payload))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ModelCallError(
                tries.tried
                or f"The model server at {where} does not answer "
                f"({failure_message(error)})."
            ) from None
        status = response.status
        text = beginning(payload.decode(errors="replace"), _SHOWN)
        if status in KEY_REFUSED:
            raise ProviderError(refusal(where, status, text))
        if status >= 400 and overflow_message(payload) is not None:
            raise ContextLengthError(f"{where} answered {status}: {text}")
        if status >= 400:
            raise ModelCallError(tries.tried or f"{where} answered {status}: {text}")
        answer = _parsed(payload)
        if answer is None:
            raise ModelCallError(f"{where} answered {status}, not JSON: {text!r}")
        return payload, answer


def _problem(payload: bytes) -> str | None:
    """Return why an answer is not a valid completion; None if it is valid."""
    answer = _parsed(payload)
    return "it is not a JSON object" if answer is None else Completion(answer).problem


def _parsed(payload: bytes | None) -> dict[str, Any] | None:
    """Parse an answer as a JSON object; return None if it is not one."""
    try:
        found = orjson.loads(payload or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
