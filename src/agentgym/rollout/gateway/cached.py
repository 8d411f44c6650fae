"""CachedUpstream: answer repeated requests from a file instead of a model's servers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson

from agentgym.models.answers import AnswerCache
from agentgym.rollout.gateway.protocol import ProxyCall
from agentgym.rollout.gateway.remote import ForwardingUpstream
from agentgym.rollout.gateway.sse import StreamAssembler
from agentgym.rollout.gateway.upstream import CallOutcome, Exchange, Upstream
from agentgym.rollout.gateway.wire import load_json

_CACHE = "cache"
"""Recorded as the server's address if an answer came from the cache."""


class CachedUpstream(Upstream):
    """Answers repeated requests at temperature 0 from a cache; not used in training.

    A cached answer has the same bytes as the server's first answer, with its token ids
    and log-probabilities. Errors are not cached.
    """

    def __init__(self, upstream: ForwardingUpstream, cache: AnswerCache) -> None:
        self._upstream = upstream
        self._cache = cache

    @property
    def failure(self) -> str | None:
        """Why the servers cannot answer any more, or None."""
        return self._upstream.failure

    @property
    def troubles(self) -> list[str]:
        """Messages about failures of the servers."""
        return self._upstream.troubles

    @property
    def model_name(self) -> str:
        """The model name that agents see."""
        return self._upstream.model_name

    async def start(self) -> None:
        """Open the connections to the servers."""
        await self._upstream.start()

    async def close(self) -> None:
        """Close the connections to the servers."""
        await self._upstream.close()

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the cached answer, or ask a server and cache its answer."""
        key = None
        if call.mode != "train":
            key = self._cache.key(call.path, self._upstream.prepare(call).body)
        if key is None:
            async with aclosing(self._upstream.answer(call)) as items:
                async for item in items:
                    yield item
            return
        async with self._cache.turn(key):
            if (kept := self._cache.get(key)) is not None:
                for item in self._again(call, kept):
                    yield item
                return
            parts: list[bytes] = []
            async with aclosing(self._upstream.answer(call)) as items:
                async for item in items:
                    if isinstance(item, bytes):
                        parts.append(item)
                    else:
                        parts.append(item.payload)
                        if item.status < 400:
                            self._cache.keep(key, b"".join(parts))
                    yield item

    def _again(self, call: ProxyCall, kept: bytes) -> list[bytes | CallOutcome]:
        """Convert the cached bytes ``kept`` to the items that :meth:`answer` yields."""
        replicas, version, body = self._upstream.prepare(call)
        sent = Exchange(call, replicas.model, _CACHE, version, orjson.dumps(body))
        if kept.lstrip().startswith(b"{"):
            return [sent.answer(load_json(kept), kept, is_whole=True)]
        stream = StreamAssembler()
        stream.feed(kept)
        return [b"", sent.answer(stream.response, kept)]
