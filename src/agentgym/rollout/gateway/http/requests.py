"""Handle HTTP requests and connections, with deadlines for slow clients."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.protocol import GatewaySettings, reply
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_OPTIONS: dict[str, Any] = {
    "keepalive_timeout": 75.0,  # between two requests
    "lingering_time": 1.0,  # for clients that still send
    "access_log": None,
}
_TIMEOUT = {"Connection": "close"}


class Request(web.BaseRequest):
    """A request whose body must arrive within ``body_timeout_s`` seconds."""

    key: str = ""  # kind of the key: ``operator``, ``agent``, or ``none`` if not needed
    names: dict[str, str]  # values of the ``{name}`` parts of the route's path
    body_timeout_s: float

    @property
    def raw_path(self) -> str:
        """The request's path, still percent-encoded, without a query."""
        return self.rel_url.raw_path

    def header(self, name: str) -> str:
        """Return a header; empty if it is missing."""
        return self.headers.get(name, "")

    async def read(self) -> bytes:
        """Return the body; raise an ApiError if it is late, too large or malformed."""
        try:
            if self.content.is_eof():
                return await super().read()
            async with asyncio.timeout(self.body_timeout_s):
                return await super().read()
        except TimeoutError:
            text = f"The body did not come within {self.body_timeout_s:g} s."
            raise ApiError(408, text, "timeout", headers=_TIMEOUT) from None
        except web.HTTPRequestEntityTooLarge:
            text = f"The body has more than {self._client_max_size:,} bytes."
            raise ApiError(413, text, "too_large", headers=_TIMEOUT) from None
        except web.RequestPayloadError:
            text = "The body is cut, or not encoded as its headers say."
            raise ApiError(400, text, "invalid_body", headers=_TIMEOUT) from None


class Connection(web.RequestHandler):
    """A connection; it is closed if the head of its first request is late.

    aiohttp closes it if a later request is late.
    """

    def __init__(self, server: "HttpServer", settings: GatewaySettings) -> None:
        self._header_timeout_s = settings.header_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        super().__init__(
            server, loop=asyncio.get_running_loop(), logger=logger, **_OPTIONS
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the deadline for the first request."""
        super().connection_made(transport)
        self._timer = self._loop.call_later(self._header_timeout_s, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the deadline."""
        self.begin()
        super().connection_lost(exc)

    def begin(self) -> None:
        """Cancel the deadline: a request has arrived."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return a response with status 400, for a malformed HTTP request."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if status >= 500:
            logger.error("a request could not be answered", exc_info=exc)
        text = ApiError(400, "This is not a readable HTTP request.", "no_http")
        return reply(text.body, text.status, _TIMEOUT)


class HttpServer(web.Server):
    """Creates a :class:`Connection` for each client, with the settings' limits."""

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        settings: GatewaySettings,
    ) -> None:
        self._settings = settings
        self._handler = handler
        # a caller that disconnects frees its slot
        super().__init__(
            self._begun, request_factory=self._request, handler_cancellation=True
        )

    def __call__(self) -> Connection:
        """Return a new connection."""
        return Connection(self, self._settings)

    async def _begun(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, whose head has arrived."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.begin()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer has not begun
        return await self._handler(request)

    def _request(self, *parts: Any) -> Request:
        made: Callable[..., Request] = Request
        loop, most = asyncio.get_running_loop(), self._settings.max_body_bytes
        request = made(*parts, loop, client_max_size=most)
        request.body_timeout_s = self._settings.body_timeout_s
        return request
