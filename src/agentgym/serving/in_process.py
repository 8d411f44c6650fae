"""PolicyTransport: let OpenAI's clients use a policy in the same process."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from queue import SimpleQueue
from typing import Any

import httpx

from agentgym.core.openai import ApiError
from agentgym.core.policy import Policy
from agentgym.rollout.gateway.protocol import json_object
from agentgym.rollout.gateway.upstream import Chat, EndedAnswer
from agentgym.serving.server import asked_chat


class PolicyTransport(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """httpx transport in which a policy answers chat completions, without a network.

    Pass it to ``httpx.AsyncClient`` or ``httpx.Client``. A request without a seed gets
    its own number as the seed, 0 for the first request. As in training, sampling
    options such as ``parallel_tool_calls`` are ignored. If the requested model is
    ``NAME/ROLE``, with ``NAME`` as ``model``, the adapter of that role answers. Closing
    the client closes the policy too.
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
            chat = self._chat({"seed": next(self._seeds), **body})
        except ApiError as error:
            return httpx.Response(error.status, json=error.body)
        answer = chat.answer()
        first = await anext(answer)
        if not isinstance(first, EndedAnswer):
            kind = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=kind, stream=_Stream(first, answer))
        await answer.aclose()
        kind = {"content-type": "application/json"}
        return httpx.Response(first.status, headers=kind, content=first.payload)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request from sync code, also inside an event loop."""
        request.read()
        parts = _iterate_in_background(self._parts(request))
        response = next(parts)
        assert isinstance(response, httpx.Response)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=_SyncStream(parts)
        )

    def room(self, body: dict[str, Any]) -> tuple[int, int]:
        """Return a request's number of prompt tokens, and how many more would fit.

        Raises:
            ApiError: The request is invalid.
        """
        return self._policy.room(self._chat(body).request)

    async def aclose(self) -> None:
        """Close the policy."""
        await asyncio.to_thread(self._policy.close)

    def close(self) -> None:
        """Close the policy."""
        self._policy.close()

    def _chat(self, body: dict[str, Any]) -> Chat:
        body = {"model": self._model, **body}
        _, _, role = str(body["model"]).partition(f"{self._model}/")
        return asked_chat(
            self._policy,
            body,
            agent=role,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            in_training=True,
        )

    async def _parts(
        self, request: httpx.Request
    ) -> AsyncIterator[httpx.Response | bytes]:
        """Yield the response, then its body; both in one event loop."""
        response = await self.handle_async_request(request)
        yield response
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for part in response.stream:
            yield part


class _Stream(httpx.AsyncByteStream):
    """A streamed answer: the first bytes, which were already read, and the rest."""

    def __init__(
        self, first: bytes, answer: AsyncGenerator[bytes | EndedAnswer, None]
    ) -> None:
        self._first = first
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        async with aclosing(self._answer) as items:
            async for item in items:
                yield item.payload if isinstance(item, EndedAnswer) else item


class _SyncStream(httpx.SyncByteStream):
    """The body of an answer that a background thread receives."""

    def __init__(self, parts: Generator[Any]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._parts.close()


def _iterate_in_background[T](items: AsyncIterator[T]) -> Generator[T]:
    """Yield the items of an async iterator in sync code, also inside an event loop.

    The iterator runs in an event loop of another thread, which ends with the iteration.
    Closing the generator cancels the iteration.
    """
    ready: SimpleQueue[tuple[T, ...]] = SimpleQueue()

    async def fetch() -> None:
        async for item in items:
            ready.put((item,))

    loop = asyncio.new_event_loop()
    task = loop.create_task(fetch())
    with closing(loop), ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(loop.run_until_complete, task)
        fetched.add_done_callback(lambda _: ready.put(()))
        try:
            while found := ready.get():
                yield from found
            fetched.result()
        finally:
            loop.call_soon_threadsafe(task.cancel)
