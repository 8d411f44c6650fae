"""CachedUpstream: answer repeated requests from a file instead of a provider."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson

from agentgym.models.answers import AnswerCache
from agentgym.models.reference import Endpoint
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.gateway.remote import ProviderUpstream
from agentgym.rollout.gateway.sse import StreamAssembler
from agentgym.rollout.gateway.upstream import CallOutcome, Exchange
from agentgym.rollout.gateway.wire import load_json

_CACHE = "cache"
"""Recorded as the server's address if an answer came from the cache."""


class CachedUpstream(ProviderUpstream):
    """Answers repeated requests at temperature 0 from a cache; not used in training.

    A cached answer has the same bytes as the provider's first answer, with its token
    ids and log-probabilities. Errors are not cached.
    """

    def __init__(
        self, endpoint: Endpoint, settings: GatewaySettings, cache: AnswerCache
    ) -> None:
        super().__init__(endpoint, settings)
        self._cache = cache

    async def answer(self, call: ProxyCall) -> AsyncGenerator[bytes | CallOutcome]:
        """Yield the cached answer, or the provider's answer, which is then cached."""
        asked = super().answer(call)
        key = None
        if call.mode != "train":
            key = self._cache.key(call.path, self.prepare(call).body)
        if key is None:
            async with aclosing(asked) as items:
                async for item in items:
                    yield item
            return
        async with self._cache.turn(key):
            if (kept := self._cache.get(key)) is not None:
                for item in self._again(call, kept):
                    yield item
                return
            parts: list[bytes] = []
            async with aclosing(asked) as items:
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
        replicas, version, body = self.prepare(call)
        sent = Exchange(call, replicas.model, _CACHE, version, orjson.dumps(body))
        if kept.lstrip().startswith(b"{"):
            return [sent.answer(load_json(kept), kept, is_whole=True)]
        stream = StreamAssembler()
        stream.feed(kept)
        return [b"", sent.answer(stream.response, kept)]
