"""Gateway: serve Agent Lightning's protocol from a thread of this process."""

import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

import orjson
from aiohttp import web

from agentgym.core.policy import Policy, RegisteredPolicy, ServedPolicy
from agentgym.errors import RolloutError
from agentgym.models.answers import AnswerCache
from agentgym.models.reference import Endpoint
from agentgym.plugins import registered
from agentgym.rollout.gateway.address import why_unusable
from agentgym.rollout.gateway.admission import Admission
from agentgym.rollout.gateway.api import ApiHandlers
from agentgym.rollout.gateway.http.keys import Keys, agent_key
from agentgym.rollout.gateway.http.listener import Listener
from agentgym.rollout.gateway.http.requests import Request
from agentgym.rollout.gateway.http.routes import Route
from agentgym.rollout.gateway.metered import MeteredEndpoint, MeteredUpstream
from agentgym.rollout.gateway.protocol import GatewaySettings, Mode, ProxyCall, reply
from agentgym.rollout.gateway.proxy import Proxy
from agentgym.rollout.gateway.remote import ProviderUpstream, RemoteUpstream
from agentgym.rollout.gateway.sse import StreamAssembler
from agentgym.rollout.gateway.upstream import (
    CallOutcome,
    Exchange,
    PolicyUpstream,
    Upstream,
)
from agentgym.rollout.gateway.wire import load_json
from agentgym.rollout.prompt_overrides import Wording
from agentgym.rollout.store.store import Store
from agentgym.security.audit import AuditLog

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED = (401, 403)
_EVERY_S = 60.0
"""Refused keys of one address are logged at most once in this number of seconds, so
that a client cannot fill the log.
"""
_MOST_PEERS = 1000


class Noted:
    """Writes refused keys and write requests, e.g. of rewards, to the audit log.

    Model calls, and the requests in which workers claim rollouts, are not logged,
    because the store records them.
    """

    def __init__(self, log: AuditLog | None) -> None:
        self._log = log
        self._refused: Counter[str] = Counter()
        self._noted_at: dict[str, float] = {}

    def __call__(self, request: Request, status: int) -> None:
        """Log a request if its key was refused, or if it is a write request."""
        if self._log is None:
            return
        what, times = "gateway", 1
        if status in _REFUSED:
            many = len(self._noted_at) >= _MOST_PEERS
            peer = "others" if many else request.remote or ""
            self._refused[peer] += 1
            now = time.monotonic()
            if now - self._noted_at.get(peer, -_EVERY_S) < _EVERY_S:
                return
            self._noted_at[peer] = now
            what, times = "refused key", self._refused.pop(peer)
        elif request.method in _READS or not _is_written(request.path):
            return
        self._log.write(
            what,
            key=request.key or None,
            peer=request.remote,
            method=request.method,
            path=request.path[:200],
            status=status,
            times=times if times > 1 else None,
        )


def _is_written(path: str) -> bool:
    return path != "/api/rollouts/claim" and not path.startswith("/proxy/rollout/")


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


class Gateway:
    """HTTP server for agents, workers and a trainer, on a thread of its own.

    Agents send their model calls to it. ``policy`` answers them: a policy in this
    process, a ServedPolicy (a policy on inference servers), or an Endpoint (a
    provider's model, whose answers ``cache`` may keep). If ``policy`` is None or a
    RegisteredPolicy (the policy of an external trainer), the calls go to the servers
    that were registered at ``/api/models``. With a RegisteredPolicy, clients cannot
    delete rollouts. ``audit`` is the log of write requests and refused keys.
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | ServedPolicy | RegisteredPolicy | Endpoint | None = None,
        settings: GatewaySettings | None = None,
        cache: AnswerCache | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._settings = settings or GatewaySettings()
        self._trained = policy if isinstance(policy, RegisteredPolicy) else None
        served = None if isinstance(policy, RegisteredPolicy) else policy
        if self._trained is not None:
            name = self._trained.model_name
            self._settings = replace(self._settings, model_name=name)
        key = self._settings.api_key
        self.api_key = secrets.token_urlsafe(24) if key is None else key
        self.store = store
        self.admission = Admission(self._settings)
        self._upstream = _upstream(store, served, self._settings, cache)
        self._proxy = Proxy(store, self._upstream, self.admission, self._settings)
        api: type[ApiHandlers] = registered("agentgym.gateway", "api")
        handlers = api(
            store, takes_models=served is None, deletes=self._trained is None
        )
        self._listener = Listener(
            [
                *self._proxy.routes(),
                *map(self._kept, handlers.routes()),
                Route("GET", "/api/refused", self._count_refused),
            ],
            self._settings,
            keys=Keys(self.api_key, for_agents=True),
            name="agentgym-gateway",
            grace_s=self._settings.grace_s,
            during=self._upstream,
            noted=Noted(audit),
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, e.g. ``http://127.0.0.1:41234``."""
        return self._listener.url

    @property
    def agent_key(self) -> str:
        """The key for agents, which allows only model calls."""
        return agent_key(self.api_key)

    @property
    def failure(self) -> str | None:
        """Why model calls cannot be answered any more; None if they can."""
        if self._trained is not None:
            return self._trained.failure or None
        return self._upstream.failure

    @property
    def troubles(self) -> list[str]:
        """Messages about model servers that failed, and so got no calls."""
        return self._upstream.troubles

    @property
    def refused(self) -> Counter[str]:
        """Number of requests that the gateway itself refused, by error code."""
        return self._listener.refused

    @property
    def model_name(self) -> str:
        """The model's name, as agents use it in requests."""
        return self._upstream.model_name

    def reword(self, wording: Wording) -> None:
        """Replace the agent's prompts and tool descriptions in all later requests."""
        self._proxy.wording = wording

    def proxy_url(
        self, rollout_id: str, attempt_id: str = "0", mode: Mode = "train"
    ) -> str:
        """Return the base URL for the OpenAI client of an attempt's agent."""
        where = f"rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}"
        return f"{self.url}/proxy/{where}/openai/v1"

    def start(self) -> Self:
        """Start to listen; raise RolloutError if the address cannot be used."""
        try:
            self._listener.start()
        except OSError as error:
            where = self._settings.host, self._settings.port
            raise RolloutError(why_unusable(*where, error)) from error
        return self

    def close(self) -> None:
        """Stop listening; abort requests that still run ``grace_s`` seconds later."""
        self._listener.close()

    def _kept(self, route: Route) -> Route:
        """Wrap a route: its response waits until the handler's writes are stored."""
        if route.method == "GET":
            return route

        async def handler(request: Any) -> web.StreamResponse:
            answer = await route.handler(request)
            await self.store.kept()
            return answer

        return route._replace(handler=handler)

    async def _count_refused(self, request: Request) -> web.Response:
        return reply({"requests": self.refused})


def _upstream(
    store: Store,
    policy: Policy | ServedPolicy | Endpoint | None,
    settings: GatewaySettings,
    cache: AnswerCache | None,
) -> Upstream:
    if policy is None or isinstance(policy, ServedPolicy):
        return RemoteUpstream(policy or store, settings)
    if isinstance(policy, MeteredEndpoint):
        return MeteredUpstream(policy, settings)
    if isinstance(policy, Endpoint):
        if cache is not None:
            return CachedUpstream(policy, settings, cache)
        return ProviderUpstream(policy, settings)
    return PolicyUpstream(policy, settings)
