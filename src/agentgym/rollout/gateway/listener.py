"""Listener: HTTP on a thread of this process, with a key and errors in one shape."""

import asyncio
import hmac
import logging
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future

import uvloop
from aiohttp import web
from pydantic import ValidationError

from agentgym.core.openai import ApiError
from agentgym.errors import (
    RecordError,
    RolloutNotFoundError,
    RolloutStateError,
    StoreError,
)
from agentgym.rollout.gateway.protocol import GatewaySettings, reply
from agentgym.rollout.gateway.wire import is_writable

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BACKLOG = 1024
_HEALTH = "/healthz"
_MOST_NAME = 1000  # characters
_CLOSE_S = 2.0


class Listener:
    """Serves routes, and ``/healthz``, on a thread and event loop of its own.

    Args:
        routes: What it serves.
        settings: Address and most bytes of a request.
        api_key: Bearer key of all but ``/healthz``; empty asks for none.
        name: Of the thread.
        grace_s: How long answers under way may go on once it is closed.
        lifespan: Entered on the event loop before it listens, left after the last
            answer.

    Attributes:
        refused: Requests that were answered with an error of ours, by its code.
    """

    def __init__(
        self,
        routes: Sequence[web.RouteDef],
        settings: GatewaySettings,
        *,
        api_key: str,
        name: str,
        grace_s: float,
        lifespan: Callable[[web.Application], AsyncIterator[None]] | None = None,
    ) -> None:
        self._routes = routes
        self._settings = settings
        self._api_key = api_key
        self._grace_s = grace_s
        self._lifespan = lifespan
        self.refused: Counter[str] = Counter()
        self._socket: socket.socket | None = None
        self._listens: Future[None] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens, e.g. ``http://127.0.0.1:41234``."""
        host, port = self._settings.host, self._bound().getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def bind(self) -> None:
        """Take the address, before anybody is answered.

        Raises:
            OSError: It is taken, or none of this machine.
        """
        self._bound()

    def start(self) -> None:
        """Listen; returns once requests are taken.

        Raises:
            OSError: The address cannot be used.
        """
        self._bound()
        self._thread.start()
        self._listens.result()

    def close(self) -> None:
        """Stop listening; answers under way end within the grace, or are cut off."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.ident is not None:
            self._thread.join(self._grace_s + _CLOSE_S)  # then something hangs
        if self._socket is not None:
            self._socket.close()

    def _bound(self) -> socket.socket:
        if self._socket is None:
            host, port = self._settings.host, self._settings.port
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, *_, address = min(found, key=lambda x: x[0] != socket.AF_INET)
            bound = socket.socket(family, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                bound.bind(address)
            except BaseException:
                bound.close()
                raise
            self._socket = bound
        return self._socket

    def _run(self) -> None:
        try:
            asyncio.run(self._serve(), loop_factory=uvloop.new_event_loop)
        except BaseException as error:
            if self._listens.done():
                raise
            self._listens.set_exception(error)

    async def _serve(self) -> None:
        app = web.Application(
            middlewares=[self._guard], client_max_size=self._settings.max_body_bytes
        )
        app.router.add_get(_HEALTH, _health)
        app.router.add_routes(self._routes)
        if self._lifespan is not None:
            app.cleanup_ctx.append(self._lifespan)
        server = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,  # a caller that hangs up frees its place
            shutdown_timeout=self._grace_s,
        )
        self._loop = asyncio.get_running_loop()
        try:
            await server.setup()
            await web.SockSite(server, self._bound(), backlog=_BACKLOG).start()
            self._listens.set_result(None)
            await self._stop.wait()
        finally:
            await server.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Check the key, and shape every error."""
        try:
            if request.path != _HEALTH and not self._is_authorized(request):
                key, kind = "invalid_api_key", "authentication_error"
                raise ApiError(401, "Invalid or missing API key", key, kind)
            for name, text in request.match_info.items():
                if len(text) > _MOST_NAME or not is_writable(text):
                    what = f"{name} = {text!r:.80} is no name that can be stored."
                    raise ApiError(400, what, "invalid_value")
            return await handler(request)
        except Exception as error:
            told = _told(error)
            self.refused[told.code] += 1
            if told.code == "internal_error":
                logger.exception("%s %s failed", request.method, request.path)
            return reply(told.body, told.status, told.headers)

    def _is_authorized(self, request: web.Request) -> bool:
        if not self._api_key:
            return True
        header = request.headers.get("Authorization", "")
        given = header.removeprefix("Bearer ") if header.startswith("Bearer ") else ""
        expected = self._api_key.encode()
        return any(
            hmac.compare_digest(key.encode(errors="surrogateescape"), expected)
            for key in (given, request.headers.get("X-API-Key", ""))
        )


async def _health(request: web.Request) -> web.Response:
    return reply({"status": "ok"})


def _told(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case RolloutNotFoundError():
            return ApiError(404, str(error), "rollout_not_found")
        case RolloutStateError():
            return ApiError(409, str(error), "rollout_state")
        case ValidationError():
            return ApiError(422, str(error), "invalid_value")
        case RecordError():
            return ApiError(422, str(error), "invalid_record")
        case StoreError():
            return ApiError(503, str(error), "store_failed", "server_error")
        case web.HTTPException():
            return ApiError(error.status, error.reason, "http_error")
    message = f"{type(error).__name__}: {error}"
    return ApiError(500, message, "internal_error", "server_error")
