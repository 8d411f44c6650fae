"""EndpointLlm: an OpenAI-compatible server as a model function."""

from typing import Any

import aiohttp
import orjson

from agentgym.errors import ContextLengthError, ModelCallError, ProviderError
from agentgym.models.http import HttpClient, overflow_told
from agentgym.models.reference import KEY_REFUSED, Endpoint, refusal

_BACKOFF_S = 0.5
_SHOWN = 300


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
