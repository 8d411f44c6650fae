"""PolicyTransport: let OpenAI's client use a policy in the same process."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import httpx

from agentgym.core.openai import ApiError
from agentgym.core.policy import Policy
from agentgym.rollout.gateway.chat import Ended
from agentgym.rollout.gateway.protocol import json_object
from agentgym.serving.server import asked_chat


class PolicyTransport(httpx.AsyncBaseTransport):
    """httpx transport in which a policy answers chat completions, without a network.

    A request without a seed gets its own number as the seed, 0 for the first request.
    As in training, sampling options such as ``parallel_tool_calls`` are ignored.
    Closing the client closes the policy too.
    """

    def __init__(
        self, policy: Policy, model: str, *, temperature: float, max_tokens: int
    ) -> None:
        self._policy = policy
        self._model = model
        self._seeds = itertools.count()
        self._temperature = temperature
        self._max_tokens = max_tokens

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request; an invalid request gets an error in OpenAI's format."""
        try:
            if not request.url.path.endswith("/chat/completions"):
                message = f"{request.url.path} is not answered, /chat/completions is."
                raise ApiError(404, message, "not_found")
            body = json_object(await request.aread())
            chat = asked_chat(
                self._policy,
                {"model": self._model, "seed": next(self._seeds), **body},
                temperature=self._temperature,
                max_tokens=self._max_tokens,
                in_training=True,
            )
        except ApiError as error:
            return httpx.Response(error.status, json=error.body)
        answer = chat.answer()
        first = await anext(answer)
        if not isinstance(first, Ended):
            kind = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=kind, stream=_Stream(first, answer))
        await answer.aclose()
        kind = {"content-type": "application/json"}
        return httpx.Response(first.status, headers=kind, content=first.payload)

    async def aclose(self) -> None:
        """Close the policy."""
        await asyncio.to_thread(self._policy.close)


class _Stream(httpx.AsyncByteStream):
    """A streamed answer: the first bytes, which were already read, and the rest."""

    def __init__(
        self, first: bytes, answer: AsyncGenerator[bytes | Ended, None]
    ) -> None:
        self._first = first
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        async with aclosing(self._answer) as items:
            async for item in items:
                yield item.payload if isinstance(item, Ended) else item
