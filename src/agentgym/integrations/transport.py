"""An HTTP transport that sends each request to the current episode's endpoint."""

import httpx
from httpx_aiohttp import AiohttpTransport

from agentgym.core.openai import ApiError
from agentgym.integrations.episode import current_episode

PLACEHOLDER = "/episode"
"""Path that clients are built with; replaced by the episode's own."""


class EpisodeTransport(httpx.AsyncBaseTransport):
    """Rewrites ``/episode/...`` so that one client serves many episodes.

    One client per worker keeps the cost of a call low: building an OpenAI client
    takes longer than a request on it. Connections are aiohttp's: with dozens of them
    its pool takes a fraction of the time of httpx's own.

    Args:
        limits: Of the connections.
        max_turns: Model calls that an episode may make; more are answered with 400 and
            the code ``max_turns``, and reach nobody.
    """

    def __init__(self, *, limits: httpx.Limits, max_turns: int) -> None:
        self._inner = AiohttpTransport(limits=limits)
        self._max_turns = max_turns

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` on behalf of the current episode."""
        path = request.url.raw_path.decode()
        if path.startswith(PLACEHOLDER):
            episode = current_episode()
            episode.model_calls += 1
            if episode.model_calls > self._max_turns:
                told = f"The episode has made its {self._max_turns} model calls."
                refused = ApiError(400, told, "max_turns")
                return httpx.Response(refused.status, json=refused.body)
            episode_path = episode.path + path[len(PLACEHOLDER) :]
            request.url = request.url.copy_with(raw_path=episode_path.encode())
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._inner.aclose()


def episode_client(connections: int, *, max_turns: int) -> httpx.AsyncClient:
    """Return a client whose requests to ``/episode`` follow the current episode."""
    limits = httpx.Limits(
        max_connections=connections, max_keepalive_connections=connections
    )
    return httpx.AsyncClient(
        transport=EpisodeTransport(limits=limits, max_turns=max_turns),
        timeout=httpx.Timeout(None),
    )
