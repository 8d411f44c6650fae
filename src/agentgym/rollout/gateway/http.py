"""Serve HTTP on a thread, with keys, routes, limits, and errors in OpenAI's format."""

import asyncio
import errno
import hmac
import ipaddress
import re
import socket
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple
from urllib.parse import unquote

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
    UsageError,
)
from agentgym.rollout.gateway.protocol import (
    GatewaySettings,
    invalid,
    is_writable,
    reply,
)
from agentgym.security.redaction import get_logger, quoted

logger = get_logger(__name__)


_MOST_PORT = 65_535


def check_address(host: str, port: int, api_key: str | None, *, how: str) -> None:
    """Check a server's host, port and API key; raise UsageError if one is invalid.

    A host that other machines can reach needs a key. Port 0 stands for any free port.
    An ``api_key`` of None or "" means that requests need no key. ``how`` ends the error
    message about a missing key: how to set one, e.g. ``with --api-key``.
    """
    if not 0 <= port <= _MOST_PORT:
        raise UsageError(
            f"{port} is not a port: give one from 1 to {_MOST_PORT:,}, or 0 for a free "
            "one."
        )
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("The API key has characters that no HTTP header can hold.")
    if api_key and api_key != api_key.strip():
        raise UsageError(
            "The API key begins or ends with a space, which a header cannot hold: "
            "remove it."
        )
    if not api_key and not is_own(host):
        raise UsageError(
            f"Any machine that reaches {host} could use the model: on another address "
            f"than 127.0.0.1 give a key, {how}."
        )


def why_unusable(host: str, port: int, error: OSError) -> str:
    """Return an error message: why a server cannot listen, and the remedy."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is taken by another program: give another with "
            "--port, or 0 for a free one."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} needs root rights: give 1024 or higher with --port."
    return f"{host} cannot be listened on: {error.strerror or error}."


def is_own(host: str) -> bool:
    """Return whether a host is a loopback address, e.g. ``127.0.0.1``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_FREE = ("/healthz",)
_AGENTS = "/proxy/rollout/"
_PURPOSE = b"agentgym: an agent's model calls"


def agent_key(api_key: str) -> str:
    """Derive the key for agents from the operator's key ``api_key``.

    The operator's key cannot be computed from the key for agents. If ``api_key`` is
    empty, the result is empty, and agents need no key.
    """
    if not api_key:
        return ""
    made = hmac.new(api_key.encode(errors="surrogateescape"), _PURPOSE, "sha256")
    return f"agent-{made.hexdigest()[:40]}"


class Keys:
    """Checks a request's API key, and whether that key allows the request.

    If the operator's ``api_key`` is empty, requests need no key. With ``for_agents``,
    the key from :func:`agent_key` is accepted for model calls, too.
    """

    def __init__(self, api_key: str, *, for_agents: bool = False) -> None:
        self._known = [("operator", api_key.encode(errors="surrogateescape"))]
        if for_agents:
            self._known.append(("agent", agent_key(api_key).encode()))
        self._is_open = not api_key

    def check(self, request: "Request") -> None:
        """Check a request's key, and store the kind of the key in ``request.key``."""
        path = request.path
        if self._is_open or path in _FREE:
            request.key = "none"
            return
        given = request.header("authorization")
        given = given[7:] if given.startswith("Bearer ") else ""
        who = self._owner(given) or self._owner(request.header("x-api-key"))
        if who is None:
            message, kind = "Invalid or missing API key", "authentication_error"
            raise ApiError(401, message, "invalid_api_key", kind)
        request.key = who
        if who == "agent" and not path.startswith(_AGENTS):
            message = "This is an agent's key: it only allows calls of the model."
            raise ApiError(403, message, "agent_key", "permission_error")

    def _owner(self, given: str) -> str | None:
        if not given:
            return None
        sent = given.encode(errors="surrogateescape")
        return next((n for n, k in self._known if hmac.compare_digest(sent, k)), None)


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

    def __init__(self, server: "HttpServer", header_timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, logger=logger, **_OPTIONS)
        self._timer = loop.call_later(header_timeout_s, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the deadline."""
        self.begin()
        super().connection_lost(exc)

    def begin(self) -> None:
        """Cancel the deadline: a request has arrived."""
        self._timer.cancel()


class HttpServer(web.Server):
    """Creates a :class:`Connection` for each client, with the settings' limits."""

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        settings: GatewaySettings,
    ) -> None:
        self._settings = settings
        self._handler = handler
        super().__init__(
            self._begun,
            request_factory=self._request,
            handler_cancellation=True,  # a caller that disconnects frees its slot
        )

    def __call__(self) -> Connection:
        """Return a new connection."""
        return Connection(self, self._settings.header_timeout_s)

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


Handler = Callable[[Any], Awaitable[web.StreamResponse]]
Names = dict[str, str]

# Maximum number of characters in the name of a rollout, an attempt or an agent.
MOST_NAME = 1000

_NAME = re.compile(r"\{(\w+)(?::(.+?))?\}")


class Route(NamedTuple):
    """The handler for an HTTP method (``*`` for any) on a path.

    In the path, ``{name}`` matches one segment, and ``{name:.+}`` one or more segments.
    """

    method: str
    path: str
    handler: Handler


class RouteTable:
    """Finds the handler of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        methods: defaultdict[str, dict[str, Handler]] = defaultdict(dict)
        for route in routes:
            methods[route.path].setdefault(route.method, route.handler)
        self._fixed = {path: methods[path] for path in methods if "{" not in path}
        self._others = [
            (_pattern(path), methods[path]) for path in methods if "{" in path
        ]

    def find(self, method: str, raw_path: str) -> tuple[Handler, Names]:
        """Return the handler of a request, and the values of ``{name}`` in its path."""
        method = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for found, names in self._look_up(raw_path):
            handler = found.get(method) or found.get("*")
            if handler is not None:
                return handler, _checked(names)
            allowed |= found.keys()
        path = unquote(raw_path)
        if allowed:
            few = ", ".join(sorted(allowed))
            message = f"{quoted(path)} takes {few}, not {method:.20}."
            raise ApiError(405, message, "method_not_allowed", headers={"Allow": few})
        message = f"This server has no path {quoted(path)}."
        raise ApiError(404, message, "not_found")

    def _look_up(self, path: str) -> Iterator[tuple[dict[str, Handler], Names]]:
        if (fixed := self._fixed.get(path)) is not None:
            yield fixed, {}
        for pattern, methods in self._others:
            if match := pattern.fullmatch(path):
                yield methods, match.groupdict()


def _pattern(path: str) -> re.Pattern[str]:
    def group(name: re.Match[str]) -> str:
        return f"(?P<{name[1]}>{name[2] or '[^/]+'})"

    return re.compile(_NAME.sub(group, path))


def _checked(found: Names) -> Names:
    """Decode the values in a path; raise if one is too long or not UTF-8."""
    for name, text in found.items():
        if "%" in text:
            found[name] = text = unquote(text, errors="surrogateescape")
        if len(text) > MOST_NAME or not is_writable(text):
            raise invalid(f"{name} = {quoted(text)} is not a name that can be stored.")
    return found


class Admission:
    """Limits the number of model calls that are answered at the same time.

    Answer each call inside ``async with admission:``, always on the same event loop.
    Calls above the setting ``max_in_flight`` wait in order. While calls are paused, or
    if ``max_waiting`` calls wait already, entering the block raises an ApiError (status
    429 with ``Retry-After``). Any thread may call :meth:`pause` and :meth:`resume`, and
    read the numbers ``in_flight`` and ``waiting``.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._places = asyncio.Semaphore(settings.max_in_flight)
        self._most_waiting = settings.max_waiting
        self.waiting = 0
        self._paused = False
        self._retry_after_s = 5
        self._reason: str | None = None
        self.in_flight = 0

    def pause(self, reason: str | None = None, retry_after_s: int = 5) -> None:
        """Refuse new and waiting calls with status 429; finish the running calls."""
        self._reason, self._retry_after_s = reason, retry_after_s
        self._paused = True

    def resume(self) -> None:
        """Accept calls again."""
        self._paused = False
        self._reason = None

    def state(self) -> dict[str, Any]:
        """Return the JSON object that Agent Lightning expects from ``/proxy/state``."""
        return {
            "paused": self._paused,
            "retry_after_seconds": self._retry_after_s,
            "reason": self._reason,
            "inflight": self.in_flight,
        }

    async def __aenter__(self) -> None:
        self._refuse_if_paused()
        if self._places.locked() and self.waiting >= self._most_waiting:
            message = f"{self.waiting} calls wait already: too many are in flight."
            raise _too_many(message, "too_many_requests", {"Retry-After": "1"})
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        if self._paused:
            self._places.release()
            self._refuse_if_paused()
        self.in_flight += 1

    async def __aexit__(self, *_: object) -> None:
        self.in_flight -= 1
        self._places.release()

    def _refuse_if_paused(self) -> None:
        if self._paused:
            message = "gateway paused" + (f": {self._reason}" if self._reason else "")
            wait = {"Retry-After": str(self._retry_after_s), "X-Agl-Paused": "true"}
            raise _too_many(message, "gateway_paused", wait)


def _too_many(message: str, code: str, headers: dict[str, str]) -> ApiError:
    return ApiError(429, message, code, "rate_limit_error", headers)


_BACKLOG = 1024
_CLOSE_S = 2.0


class Listener:
    """Serves routes, and ``/healthz``, on a thread with its own event loop.

    ``settings`` has the address, and the size and time limits of a request. ``during``
    is a context manager that is open while requests are answered. ``noted`` is called
    with each request and the HTTP status of its response. After :meth:`close`, running
    requests may take ``grace_s`` more seconds.
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
            HttpServer(self._answer, self._settings), shutdown_timeout=self._grace_s
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
        """Log an error, and convert it to a response."""
        # A method of its own: a caller's variable would keep the error, its frames and
        # the request's body in a cycle until garbage is collected.
        message = as_api_error(error)
        self._noted(request, message.status)
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
