"""Listener: serve HTTP on a thread, with keys and errors in OpenAI's format."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import uvloop
from aiohttp import web
from pydantic import ValidationError

from agentgym.core.background import run_coroutine
from agentgym.core.openai import ApiError
from agentgym.errors import (
    RecordError,
    RolloutNotFoundError,
    RolloutStateError,
    StoreError,
)
from agentgym.rollout.gateway.http.keys import Keys
from agentgym.rollout.gateway.http.requests import HttpServer, Request
from agentgym.rollout.gateway.http.routes import Route, RouteTable
from agentgym.rollout.gateway.protocol import GatewaySettings, reply
from agentgym.security.redaction import get_logger, quoted

logger = get_logger(__name__)

_BACKLOG = 1024
_CLOSE_S = 2.0


class Listener:
    """Serves routes, and ``/healthz``, on a thread with its own event loop.

    ``settings`` has the address, and the size and time limits of a request. ``during``
    is a context manager that is open while requests are answered. ``noted`` is called
    with each request and the HTTP status of its response. After :meth:`close`, running
    requests may take ``grace_s`` more seconds. ``refused`` counts the requests that
    this server itself refused, by error code; a model server's errors do not count.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        settings: GatewaySettings,
        *,
        keys: Keys,
        name: str,
        grace_s: float,
        during: AbstractAsyncContextManager[Any] | None = None,
        noted: Callable[[Request, int], None] = lambda request, status: None,
    ) -> None:
        self._noted = noted
        self._routes = RouteTable([Route("GET", "/healthz", _health), *routes])
        self._settings = settings
        self._keys = keys
        self._grace_s = grace_s
        self._during = during or nullcontext()
        self.refused: Counter[str] = Counter()
        self._socket: socket.socket | None = None
        self._listens: Future[None] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def url(self) -> str:
        """The base URL, e.g. ``http://127.0.0.1:41234``."""
        host, port = self._settings.host, self.bind().getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Start to listen; return once requests are accepted, or raise an OSError."""
        self.bind()
        self._thread.start()
        self._listens.result()

    def close(self) -> None:
        """Stop listening; abort requests that still run ``grace_s`` seconds later."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.ident is not None:
            self._thread.join(self._grace_s + _CLOSE_S)  # after that, a request hangs
        if self._socket is not None:
            self._socket.close()

    def bind(self) -> socket.socket:
        """Return a socket that is bound, but not listening; may raise an OSError."""
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
            run_coroutine(self._serve(), loop_factory=uvloop.new_event_loop)
        except BaseException as error:
            if self._listens.done():
                raise
            self._listens.set_exception(error)

    async def _serve(self) -> None:
        server = web.ServerRunner(
            HttpServer(self._answer, self._settings),
            shutdown_timeout=self._grace_s,
        )
        self._loop = asyncio.get_running_loop()
        async with self._during:
            try:
                await server.setup()
                await web.SockSite(server, self.bind(), backlog=_BACKLOG).start()
                self._listens.set_result(None)
                await self._stop.wait()
            finally:
                await server.cleanup()

    async def _answer(self, request: Request) -> web.StreamResponse:
        """Check the key, call the handler, and convert every error to a response."""
        try:
            self._keys.check(request)
            handler, names = self._routes.find(request.method, request.raw_path)
            request.names = names
            answer = await handler(request)
            self._noted(request, answer.status)
            return answer
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered
            return self._refusal(request, error)

    def _refusal(self, request: Request, error: Exception) -> web.Response:
        """Log and count an error, and convert it to a response."""
        # A method of its own: a caller's variable would keep the error, its frames and
        # the request's body in a cycle until garbage is collected.
        message = as_api_error(error)
        self._noted(request, message.status)
        self.refused[message.code] += 1
        if message.status >= 500 and not isinstance(error, ApiError):
            where = request.method, request.path
            logger.error("%s %s failed", *where, exc_info=error)
        return reply(message.body, message.status, message.headers)


async def _health(request: Request) -> web.Response:
    return reply({"status": "ok"})


def as_api_error(error: Exception) -> ApiError:
    """Convert an exception to an error for the client, without internal details."""
    match error:
        case ApiError():
            return error
        case RolloutNotFoundError():
            return ApiError(404, str(error), "rollout_not_found")
        case RolloutStateError():
            return ApiError(409, str(error), "rollout_state")
        case ValidationError():
            return ApiError(422, _problem(error), "invalid_value")
        case RecordError():
            return ApiError(422, str(error), "invalid_record")
        case StoreError():
            message = "Nothing can be recorded any more; this server's log says why."
            return ApiError(503, message, "store_failed", "server_error")
    message = "This server has failed; its log says why."
    return ApiError(500, message, "internal_error", "server_error")


def _problem(error: ValidationError) -> str:
    """Describe the first validation problem, without AgentGym's class names."""
    first = error.errors(include_url=False)[0]
    parts = [str(part) for part in first["loc"]]
    where = ".".join(part for part in parts if not part[:1].isupper()) or "the body"
    what = first["msg"]
    if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        what = "Input should be an object"
    return f"{where}: {what}, not {quoted(first['input'])}."
