"""HTTP clients that send requests to the current episode's endpoint.

The endpoint is a path at the gateway, the server that answers and records model calls.
"""

import asyncio
import functools
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Self

import httpx
import orjson
from httpx_aiohttp import AiohttpTransport

from agentgym.core.openai import CONTEXT_LENGTH, DEFAULT_AGENT, ApiError
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import Episode, EpisodeCut, current_episode
from agentgym.integrations.redirect import holding
from agentgym.integrations.witness import saw_request
from agentgym.models.links import Links, WholeAnswer
from agentgym.security.audit import asking

PLACEHOLDER = "/episode"
"""Path in these clients' requests that is replaced by the current episode's path."""

_CONNECT_S = 30.0

_SPEAKER: ContextVar[str | None] = ContextVar("agentgym_speaker", default=None)
_ANNOUNCED: ContextVar[str | None] = ContextVar("agentgym_announced", default=None)
_ANSWERED: ContextVar[WholeAnswer | None] = ContextVar(
    "agentgym_answered", default=None
)


def announce(role: str) -> None:
    """Set the name of the agent that makes the later model calls in this context.

    A name set by :func:`speaking_as` has priority.
    """
    _ANNOUNCED.set(_on_one_line(role))


@contextmanager
def speaking_as(role: str) -> Iterator[None]:
    """Set the name of the agent that makes the model calls within the block.

    Line breaks in the name become spaces.
    """
    name = _on_one_line(role)
    with holding(_SPEAKER, name), asking(agent=name):
        yield


def speaker() -> str | None:
    """Return the agent's name set by :func:`speaking_as`, or None."""
    return _SPEAKER.get()


def _on_one_line(role: str) -> str | None:
    return " ".join(role.split()) or None


class EpisodeTransport(AiohttpTransport):
    """Sends ``/episode/...`` requests to the current episode's path.

    So one client per worker serves all episodes. This saves time, because building an
    OpenAI client takes longer than a request. aiohttp makes the connections, because
    with dozens of connections its pool is much faster than httpx's pool. The
    connections belong to one event loop. Requests from another loop, e.g. of
    ``asyncio.run`` in a thread, are passed to the connections' loop.
    """

    loop: asyncio.AbstractEventLoop | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; if the episode is over, return an error response instead."""
        here = asyncio.get_running_loop()
        if self.loop is None or self.loop.is_closed():
            self.loop = here
        if self.loop is here:
            return await self._send(request)
        sent = asyncio.run_coroutine_threadsafe(self._send_whole(request), self.loop)
        return await asyncio.wrap_future(sent)

    async def _send_whole(self, request: httpx.Request) -> httpx.Response:
        response = await self._send(request)
        content = await response.aread()
        return httpx.Response(
            response.status_code, headers=_of_plain(response.headers), content=content
        )

    async def _send(self, request: httpx.Request) -> httpx.Response:
        if (known := _ANSWERED.get()) is not None:
            return httpx.Response(known.status, content=known.body)
        episode = _episode_of(request)
        if episode is None:
            return await super().handle_async_request(request)
        if (refused := _refused(request, episode)) is not None:
            return refused
        response = await super().handle_async_request(request)
        episode.answered += response.is_success
        refusal = await response.aread() if response.status_code == 400 else b""
        episode.overflowed = CONTEXT_LENGTH.encode() in refusal
        return response


class SyncEpisodeTransport(httpx.HTTPTransport):
    """The sync version of EpisodeTransport, for threads with the episode's context."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; if the episode is over, return an error response instead."""
        episode = _episode_of(request)
        if episode is None:
            return super().handle_request(request)
        if (refused := _refused(request, episode)) is not None:
            return refused
        response = super().handle_request(request)
        episode.answered += response.is_success
        refusal = response.read() if response.status_code == 400 else b""
        episode.overflowed = CONTEXT_LENGTH.encode() in refusal
        return response


class EpisodePosts:
    """Sends requests to the current episode's path, without a general HTTP client.

    It works only in the event loop in which it was made.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self._gateway = blueprint.gateway
        self._headers = {"Authorization": f"Bearer {blueprint.api_key}"}
        self._links = Links(None, _CONNECT_S)
        self._loop = asyncio.get_running_loop()

    @classmethod
    def to(cls, blueprint: Blueprint) -> Self | None:
        """Return an object for a gateway with plain HTTP; None for any other.

        None, too, outside of an event loop.
        """
        is_in_loop = asyncio._get_running_loop() is not None
        return cls(blueprint) if is_in_loop and Links.take(blueprint.gateway) else None

    def is_usable(self) -> bool:
        """Return whether the running event loop is that of the connections."""
        return asyncio.get_running_loop() is self._loop

    def close(self) -> None:
        """Close the idle connections."""
        self._links.close()

    async def post(self, path: str, body: bytes) -> WholeAnswer:
        """Send a request; if the episode is over, return an error instead."""
        episode = current_episode()
        speaker, error = _begin_turn(episode, body)
        if error is not None:
            return WholeAnswer(error.status, {}, orjson.dumps(error.body))
        return await self.send(episode, path, body, speaker)

    async def send(
        self, episode: Episode, path: str, body: bytes, speaker: str | None
    ) -> WholeAnswer:
        """Send a request that the episode has counted, and note how it was answered."""
        named = {} if speaker is None else {"X-Agent-ID": speaker}
        url = self._gateway + episode.path + path
        answer = await self._links.post(url, body, self._headers | named)
        episode.answered += answer.is_success
        is_refused = answer.status == 400
        episode.overflowed = is_refused and CONTEXT_LENGTH.encode() in answer.body
        return answer


def answered(answer: WholeAnswer) -> AbstractContextManager[None]:
    """Within the block, clients of :func:`episode_client` get this response."""
    return holding(_ANSWERED, answer)


def episode_client(blueprint: Blueprint) -> httpx.AsyncClient:
    """Return a client whose ``/episode`` requests go to the current episode's path."""
    transport = EpisodeTransport(limits=_limits(blueprint), verify=_tls())
    with suppress(RuntimeError):  # no loop runs yet: that of the first request
        transport.loop = asyncio.get_running_loop()
    return httpx.AsyncClient(transport=transport, timeout=None)


def sync_episode_client(blueprint: Blueprint) -> httpx.Client:
    """Return a sync client whose ``/episode`` requests go to the episode's path."""
    transport = SyncEpisodeTransport(limits=_limits(blueprint), verify=_tls())
    return httpx.Client(transport=transport, timeout=None)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context of all clients; loading its certificates takes 20 ms."""
    return httpx.create_ssl_context()


def _of_plain(headers: httpx.Headers) -> list[tuple[str, str]]:
    """Return the headers except those on the body's encoding or length."""
    coded = ("content-encoding", "content-length", "transfer-encoding")
    return [(key, value) for key, value in headers.multi_items() if key not in coded]


def _limits(blueprint: Blueprint) -> httpx.Limits:
    most = blueprint.connections
    return httpx.Limits(max_connections=most, max_keepalive_connections=most)


def _episode_of(request: httpx.Request) -> Episode | None:
    is_ours = request.url.raw_path.startswith(PLACEHOLDER.encode())
    return current_episode() if is_ours else None


def _begin_turn(episode: Episode, body: bytes) -> tuple[str | None, ApiError | None]:
    """Count a model call; return the agent's name, and an error if it is refused."""
    speaker = _SPEAKER.get() or _ANNOUNCED.get()
    episode.requests[speaker or DEFAULT_AGENT] = body
    saw_request(speaker or DEFAULT_AGENT)
    try:
        episode.begin_turn(speaker or DEFAULT_AGENT)
    except EpisodeCut as cut:
        text = f"The rollout is over: {cut}."
        return speaker, ApiError(400, text, cut.reason.kind)
    return speaker, None


def _refused(request: httpx.Request, episode: Episode) -> httpx.Response | None:
    """Count a model call, and set the request's path and agent name.

    Returns an error response if the episode is over, else None.
    """
    speaker, error = _begin_turn(episode, request.read())
    if error is not None:
        return httpx.Response(error.status, json=error.body)
    path = request.url.raw_path.removeprefix(PLACEHOLDER.encode())
    request.url = request.url.copy_with(raw_path=episode.path.encode() + path)
    if speaker is not None:
        request.headers.encoding = "utf-8"
        request.headers["X-Agent-ID"] = speaker
    return None
