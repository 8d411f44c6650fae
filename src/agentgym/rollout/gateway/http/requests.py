"""Handle HTTP requests and connections, with deadlines for slow clients."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.http.direct import (
    DirectRequest,
    Head,
    NotDirectError,
    answer,
    read_head,
)
from agentgym.rollout.gateway.protocol import GatewaySettings, reply
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_IDLE_S = 75.0  # between two requests
_MOST_UNREAD = 2**20
_LOOK_S = 0.1
_OPTIONS: dict[str, Any] = {
    "keepalive_timeout": 1e7,  # we set the deadlines
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
            raise _too_late(self.body_timeout_s) from None
        except web.HTTPRequestEntityTooLarge:
            text = f"The body has more than {self._client_max_size:,} bytes."
            raise ApiError(413, text, "too_large", headers=_TIMEOUT) from None
        except web.RequestPayloadError:
            text = "The body is cut, or not encoded as its headers say."
            raise ApiError(400, text, "invalid_body", headers=_TIMEOUT) from None


def _too_late(limit_s: float) -> ApiError:
    text = f"The body did not come within {limit_s:g} s."
    return ApiError(408, text, "timeout", headers=_TIMEOUT)


AnyRequest = Request | DirectRequest


class Connection(web.RequestHandler):
    """A connection with deadlines; it answers simple ("direct") requests itself.

    The module ``direct`` says which requests are direct. The first other request, and
    all requests after it, are answered by aiohttp.
    """

    def __init__(self, server: "HttpServer", settings: GatewaySettings) -> None:
        self.busy = 0  # number of requests that are being answered
        self.is_used = False  # whether a request has arrived
        self._is_closing = False
        self._server = server
        self._settings = settings
        self._is_direct = True
        self._buffer = bytearray()
        self._head: Head | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        super().__init__(
            server, loop=asyncio.get_running_loop(), logger=logger, **_OPTIONS
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the deadline for the first request."""
        super().connection_made(transport)
        self._look_again(self._settings.header_timeout_s)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the answer in progress."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, or pass them to aiohttp."""
        if not self._is_direct or self._is_closing:
            super().data_received(data)
            return
        self._buffer += data
        if self._task is None:
            self._read_direct()
        elif len(self._buffer) > self._settings.max_body_bytes:
            self.force_close()  # a client must not send so much before the answer

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """Wait up to ``timeout`` seconds for running answers, then cancel them."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout)
            if self._task is not None:
                self._task.cancel()
        await super().shutdown(timeout)

    def touch(self) -> None:
        """Restart the deadline; called when a request arrives or was answered."""
        self.is_used, self._since = True, self._loop.time()

    def close(self) -> None:
        """Close the connection once the answer in progress is sent."""
        self._is_closing = True
        if self._task is None:
            super().close()

    def _read_direct(self) -> None:
        """Answer the request in the buffer if all of its bytes have arrived."""
        if not self._buffer:
            return
        if is_new := self._head is None:
            try:
                self._head = read_head(self._buffer)
            except BlockingIOError:
                return
        head = self._head
        if head is None or head.length > self._settings.max_body_bytes:
            self._leave_direct()
            return
        end = head.size + head.length
        if len(self._buffer) < end:
            if is_new and not self._server.knows(DirectRequest(head, b"", None)):
                self._leave_direct()  # it is refused before the body arrives
            elif is_new:
                self._look_again(self._settings.body_timeout_s)
            return
        body = bytes(self._buffer[head.size : end])
        if b'"stream"' in body and head.path.startswith("/proxy/"):
            self._leave_direct()
            return
        assert self.transport is not None
        peer = self.transport.get_extra_info("peername")
        request = DirectRequest(head, body, peer[0] if peer else None)
        self.touch()
        self._task = asyncio.Task(
            self._answer_direct(request, end), loop=self._loop, eager_start=True
        )
        if self._task.done():
            self._task = None

    async def _answer_direct(self, request: DirectRequest, end: int) -> None:
        self.busy += 1
        try:
            response = await self._server.handler(request)
        except NotDirectError:
            self._task = None
            self._leave_direct()
            return
        except Exception:
            logger.exception("a request could not be answered")
            self.force_close()
            return
        finally:
            self.busy -= 1
        transport = self.transport
        if transport is None:
            return
        assert isinstance(response, web.Response)
        transport.write(answer(response))
        self._since = self._loop.time()
        del self._buffer[:end]
        self._head = self._task = None
        if self._is_closing or response.headers.get("Connection") == "close":
            self.force_close()
        elif self._buffer:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Answer the next buffered request once the client has read earlier answers."""
        transport = self.transport
        if transport is None or not self._is_direct or self._task is not None:
            return
        if transport.get_write_buffer_size() > _MOST_UNREAD:
            self._loop.call_later(_LOOK_S, self._go_on)
        else:
            self._read_direct()

    def _leave_direct(self) -> None:
        """Let aiohttp answer the request in the buffer and all later ones."""
        self._is_direct, data = False, bytes(self._buffer)
        self._buffer.clear()
        self._head = None
        super().data_received(data)

    def _look_again(self, delay_s: float) -> None:
        """Restart the timer: call :meth:`_look` after ``delay_s`` seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._since = self._loop.time()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        """Close the connection if a head, a body or the next request is overdue."""
        has_body_to_come = self._head is not None and self._task is None
        limit_s = _IDLE_S
        if has_body_to_come:
            limit_s = self._settings.body_timeout_s
        elif not self.is_used:
            limit_s = self._settings.header_timeout_s
        left_s = self._since + limit_s - self._loop.time()
        if self.busy or left_s > 0:
            self._timer = self._loop.call_later(max(left_s, 1.0), self._look)
        else:
            if has_body_to_come and self.transport is not None:
                text = _too_late(limit_s)
                self.transport.write(
                    answer(reply(text.body, text.status, text.headers))
                )
            self.force_close()

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
        knows: Callable[[DirectRequest], bool],
    ) -> None:
        self._settings = settings
        self.handler = handler
        self.knows = knows
        # a caller that disconnects frees its slot
        super().__init__(
            self._counted, request_factory=self._request, handler_cancellation=True
        )

    def __call__(self) -> Connection:
        """Return a new connection."""
        return Connection(self, self._settings)

    async def _counted(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; count it in ``Connection.busy`` until it is answered."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.busy += 1
        connection.touch()
        try:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0  # the answer has not begun
            return await self.handler(request)
        finally:
            connection.busy -= 1
            connection.touch()

    def _request(self, *parts: Any) -> Request:
        made: Callable[..., Request] = Request
        loop, most = asyncio.get_running_loop(), self._settings.max_body_bytes
        request = made(*parts, loop, client_max_size=most)
        request.body_timeout_s = self._settings.body_timeout_s
        return request
