"""EndpointLlm: asks the servers of an endpoint, as a function of messages."""

from hashlib import blake2b
from typing import Any

import aiohttp
import orjson

from agentgym.errors import ContextLengthError, ModelCallError, ProviderError
from agentgym.models.http import Attempts, ModelClient, overflow_told
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal
from agentgym.models.servers import Replicas

_BACKOFF_S = 0.5
_SHOWN = 300


class EndpointLlm:
    """Asks ``/chat/completions`` of servers; create it inside the running loop.

    Broken connections and statuses 408, 409, 429 and 5xx are tried again a few times:
    at another server, if there are several, else with growing waits, or the wait that
    the server asks for. Conversations that begin alike go to the same server, unless
    it is much busier than another. How long a call may take is the rollout's affair.

    Args:
        endpoint: The servers, the key and the model.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._replicas = Replicas(endpoint.servers, endpoint.model, endpoint.api_key)
        self._client = ModelClient(backoff_s=_BACKOFF_S)

    async def __call__(
        self, messages: list[dict[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """Return a server's chat completion.

        Raises:
            ProviderError: The server refused the key.
            ContextLengthError: The conversation is longer than the model's context.
            ModelCallError: No server answered, or not with a completion.
        """
        body = {"model": self._endpoint.model, "messages": messages, **options}
        data = orjson.dumps(body)
        session = blake2b(orjson.dumps(messages[:2]), digest_size=8).hexdigest()
        tries, where = Attempts(self._client, session), self._endpoint.told
        try:
            async for attempt in tries:
                async with attempt.at(self._replicas) as server:
                    where = server.url
                    response = await attempt.post("chat/completions", data)
                    payload = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ModelCallError(
                tries.tried
                or f"The model server at {where} does not answer "
                f"({type(error).__name__}: {error})."
            ) from None
        status = response.status
        text = payload[:_SHOWN].decode(errors="replace")
        if status in KEY_REFUSED:
            raise ProviderError(refusal(where, status, text))
        if status >= 400 and overflow_told(payload) is not None:
            raise ContextLengthError(f"{where} answered {status}: {text}")
        if status >= 400:
            raise ModelCallError(tries.tried or f"{where} answered {status}: {text}")
        try:
            answer = orjson.loads(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ModelCallError(f"{where} answered {status}, not JSON: {text!r}")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
