"""HTTP clients that send requests to the current episode's endpoint.

The endpoint is a path at the gateway, the server that answers and records model calls.
"""

import asyncio
import functools
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar

import httpx
import orjson

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
_OF_LENGTH = ("content-length", "transfer-encoding")

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


class EpisodePosts:
    """Sends requests to the current episode's path, over a worker's connections.

    So one client per worker serves all episodes: building an OpenAI client takes longer
    than a request. The connections belong to one event loop. Requests from another
    loop, e.g. of ``asyncio.run`` in a thread, are passed to it.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self._gateway = blueprint.gateway
        self._headers = {"Authorization": f"Bearer {blueprint.api_key}"}
        self._links = Links(None, _CONNECT_S)
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # no loop runs yet: that of the first request
            self._loop = asyncio.get_running_loop()

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
        here = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop, self._links = here, Links(None, _CONNECT_S)
        named = {} if speaker is None else {"X-Agent-ID": speaker}
        url = self._gateway + episode.path + path
        asked = self._links.post(url, body, self._headers | named)
        if self._loop is here:
            answer = await asked
        else:
            passed = asyncio.run_coroutine_threadsafe(asked, self._loop)
            answer = await asyncio.wrap_future(passed)
        episode.answered += answer.is_success
        is_refused = answer.status == 400
        episode.overflowed = is_refused and CONTEXT_LENGTH.encode() in answer.body
        return answer


class EpisodeTransport(httpx.AsyncBaseTransport):
    """Sends ``/episode/...`` requests to the current episode's path."""

    def __init__(self, posts: EpisodePosts) -> None:
        self._posts = posts

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; if the episode is over, return an error response instead."""
        answer = _ANSWERED.get()
        if answer is None:
            body = await request.aread()
            answer = await self._posts.post(_path_of(request), body)
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in _OF_LENGTH}
        return httpx.Response(answer.status, headers=kept, content=answer.body)


class SyncEpisodeTransport(httpx.HTTPTransport):
    """The sync version of EpisodeTransport, for threads with the episode's context."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; if the episode is over, return an error response instead."""
        episode = current_episode()
        speaker, error = _begin_turn(episode, request.read())
        if error is not None:
            return httpx.Response(error.status, json=error.body)
        path = episode.path.encode() + _path_of(request).encode()
        request.url = request.url.copy_with(raw_path=path)
        if speaker is not None:
            request.headers.encoding = "utf-8"
            request.headers["X-Agent-ID"] = speaker
        response = super().handle_request(request)
        episode.answered += response.is_success
        refusal = response.read() if response.status_code == 400 else b""
        episode.overflowed = CONTEXT_LENGTH.encode() in refusal
        return response


def answered(answer: WholeAnswer) -> AbstractContextManager[None]:
    """Within the block, clients of :func:`episode_client` get this response."""
    return holding(_ANSWERED, answer)


def episode_client(blueprint: Blueprint) -> httpx.AsyncClient:
    """Return a client whose ``/episode`` requests go to the current episode's path."""
    return client_of(EpisodePosts(blueprint))


def client_of(posts: EpisodePosts) -> httpx.AsyncClient:
    """Return a client whose ``/episode`` requests ``posts`` sends."""
    return httpx.AsyncClient(transport=EpisodeTransport(posts), timeout=None)


def sync_episode_client(blueprint: Blueprint) -> httpx.Client:
    """Return a sync client whose ``/episode`` requests go to the episode's path."""
    most = blueprint.connections
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
    transport = SyncEpisodeTransport(limits=limits, verify=_tls())
    return httpx.Client(transport=transport, timeout=None)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context of all clients; loading its certificates takes 20 ms."""
    return httpx.create_ssl_context()


def _path_of(request: httpx.Request) -> str:
    return request.url.raw_path.decode().removeprefix(PLACEHOLDER)


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
