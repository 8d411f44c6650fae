"""Requests and connections: what comes in, and until when it must have come."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.protocol import GatewaySettings, reply

logger = logging.getLogger(__name__)

_OPTIONS: dict[str, Any] = {
    "keepalive_timeout": 75.0,  # between two requests
    "lingering_time": 1.0,  # for who still sends when it is answered
    "access_log": None,
}
_TIMEOUT = {"Connection": "close"}


class Request(web.BaseRequest):
    """A request, its body read within a deadline.

    Attributes:
        key: Whose it has: ``operator``, ``agent``, or ``none`` if none is asked for.
        names: What its path names.
        body_timeout_s: How long its body may take.
    """

    key: str = ""
    names: dict[str, str]
    body_timeout_s: float

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            ApiError: 408; it did not come in time. 413; it is too large. 400; it
                cannot be decoded.
        """
        try:
            if self.content.is_eof():
                return await super().read()
            async with asyncio.timeout(self.body_timeout_s):
                return await super().read()
        except TimeoutError:
            told = f"The body did not come within {self.body_timeout_s:g} s."
            raise ApiError(408, told, "timeout", headers=_TIMEOUT) from None
        except web.HTTPRequestEntityTooLarge:
            told = f"The body has more than {self._client_max_size:,} bytes."
            raise ApiError(413, told, "too_large", headers=_TIMEOUT) from None
        except web.RequestPayloadError:
            told = "The body is cut, or not encoded as its headers say."
            raise ApiError(400, told, "invalid_body", headers=_TIMEOUT) from None


class Connection(web.RequestHandler):
    """A connection on which a first request must come in time."""

    is_used = False

    def __init__(self, server: "Server", *, header_timeout_s: float) -> None:
        self._header_timeout_s = header_timeout_s
        super().__init__(
            server, loop=asyncio.get_running_loop(), logger=logger, **_OPTIONS
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the deadline."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(self._header_timeout_s, self._close_unused)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the deadline."""
        self._late.cancel()
        super().connection_lost(exc)

    def _close_unused(self) -> None:
        if not self.is_used:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if status >= 500:
            logger.error("a request could not be answered", exc_info=exc)
        told = ApiError(400, "This is no HTTP request that can be read.", "no_http")
        return reply(told.body, told.status, _TIMEOUT)


class Server(web.Server):
    """Makes connections, and requests of what they bring.

    Args:
        handler: Answers every request.
        settings: Deadlines and sizes.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        settings: GatewaySettings,
    ) -> None:
        self._settings = settings
        # a caller that hangs up frees its place
        super().__init__(
            handler, request_factory=self._request, handler_cancellation=True
        )

    def __call__(self) -> Connection:
        """Return a new connection."""
        timeout_s = self._settings.header_timeout_s
        return Connection(self, header_timeout_s=timeout_s)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: Any,
        task: "asyncio.Task[None]",
    ) -> Request:
        if isinstance(protocol, Connection):
            protocol.is_used = True
        request = Request(
            message,
            payload,
            protocol,
            writer,
            task,
            asyncio.get_running_loop(),
            client_max_size=self._settings.max_body_bytes,
        )
        request.body_timeout_s = self._settings.body_timeout_s
        return request
