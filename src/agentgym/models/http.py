"""ModelClient: choose among a model's servers, send requests, and retry failed ones."""

import asyncio
import ipaddress
import random
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import orjson

from agentgym.core.openai import CONTEXT_LENGTH
from agentgym.errors import NoServerError
from agentgym.models.links import Links, WholeAnswer, read_answer
from agentgym.models.reference import CERTIFICATE_HINT
from agentgym.security.redaction import beginning, get_logger

logger = get_logger(__name__)

_PERHAPS_ELSEWHERE = frozenset({403, 404})
"""HTTP statuses of a problem in this server or in the request: ask another server."""
_RETRIED = frozenset({408, 409, 429, *range(500, 600)})
"""HTTP statuses after which the same request may succeed later."""

_BACKOFF_CAP_S = 8.0
_RETRY_AFTER_CAP_S = 60.0
_CONNECT_S = 10.0
_AT_ONCE = 2
"""Most servers that get a request in one attempt, without a wait between them."""
_PROBE_S = 5.0
_MOST_LISTED = 2**24
_SILENT_S = 30.0
"""A call cancelled after so many seconds without an answer counts as failed."""
_SHOWN = 300
_TOO_LONG = (
    CONTEXT_LENGTH.encode(),
    b"maximum context length",
    b"maximum model length",
)


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None for this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return None
    if host == "localhost" or host.endswith(".localhost"):
        return None
    proxies = getproxies_environment()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.netloc.rpartition("@")[2], proxies):
        return None
    return found if "://" in found else f"http://{found}"


_OUT_AFTER = 3
"""Failed calls in a row after which a server gets no calls."""
_REST_S = 1.0
_LONGEST_REST_S = 60.0
_MUCH_BUSIER = (2, 4)
"""Numbers a and b: a server is much busier with more than a * x + b calls in flight,
where x is that number of the least busy server."""
_SESSIONS = 2**14
_BARRED = (
    "was gone for a while and may have been restarted, with other weights than "
    "were asked for: it gets calls again once it is given weights or registered again"
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Servers with the same model, any of which may answer.

    If ``trains`` is true, weights change while the servers run: a server that refused a
    connection gets no calls until :meth:`ServerPool.renew`.
    """

    urls: tuple[str, ...]
    model: str
    api_key: str = field(default="", repr=False)
    trains: bool = False

    def headers_of(self, url: str) -> dict[str, str] | None:
        """Return the header with the key; None without one, or with one in the URL."""
        host = url.partition("//")[2].partition("/")[0]
        if "@" in host or not self.api_key:
            return None
        return {"Authorization": f"Bearer {self.api_key}"}


@dataclass(eq=False, slots=True)
class Server:
    """The state of a server.

    Attributes:
        out: Why the server gets no calls; empty if it gets calls.
        was_out: The last text in ``out``; empty if the server always got calls.
        is_barred: Whether the server gets no calls until :meth:`ServerPool.renew`,
            because it may have restarted with other weights.
        quiet_until: Monotonic time until which the server asked for no calls, by
            ``Retry-After``.
    """

    url: str
    in_flight: int = 0
    out: str = ""
    was_out: str = ""
    is_barred: bool = False
    rest_s: float = _REST_S
    quiet_until: float = 0.0
    failures: int = 0
    has_answered: bool = False
    turn: int = 0

    @property
    def load(self) -> tuple[int, int]:
        """Sort key: number of calls in flight, then when it was last chosen."""
        return self.in_flight, self.turn

    def is_ready(self, now: float) -> bool:
        """Return whether the server gets calls and is not in a ``Retry-After`` wait."""
        return not self.out and self.quiet_until <= now


class ServerPool:
    """Chooses among the servers of one model; use it in one event loop.

    A call goes to the least busy server, but a conversation's next call to its last
    server, which has the prefix cached, unless that is much busier.
    """

    def __init__(self, on_out: Callable[[Server], None]) -> None:
        self._on_out = on_out
        self._servers: list[Server] = []
        self._sessions: OrderedDict[str, Server] = OrderedDict()
        self._turn = 0
        self.replicas = Replicas((), "")

    @property
    def troubles(self) -> list[str]:
        """Messages about servers that failed; any thread may read this property."""
        every = [(s.url, s.out, s.was_out) for s in self._servers if s.was_out]
        return [
            f"The model server {url} gets no calls: it {out}."
            if out
            else f"The model server {url} got no calls for a while: it {was_out}."
            for url, out, was_out in every
        ]

    def choose(
        self, replicas: Replicas, session: str, avoid: Collection[Server] = ()
    ) -> Server:
        """Return the server to ask next, if possible not one in ``avoid``."""
        every = self._known(replicas)
        if len(every) == 1 and not every[0].is_barred:
            return every[0]
        chosen = self._least_busy(avoid) or self._least_busy(()) or self._resort()
        usual = self._sessions.get(session)
        if usual is not chosen and usual in every and usual not in avoid:
            times, more = _MUCH_BUSIER
            is_busy = usual.in_flight > times * chosen.in_flight + more
            if usual.is_ready(time.monotonic()) and not is_busy:
                chosen = usual
        self._turn += 1
        chosen.turn = self._turn
        self._sessions[session] = chosen
        self._sessions.move_to_end(session)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return chosen

    def has_other(self, avoid: Collection[Server]) -> bool:
        """Return whether a server that is not in ``avoid`` is ready."""
        return self._least_busy(avoid) is not None

    def wait_s(self) -> float:
        """Return the seconds until ``Retry-After`` allows to ask a server again."""
        up = (server for server in self._servers if not server.out)
        until = min((server.quiet_until for server in up), default=0.0)
        return max(0.0, round(until - time.monotonic(), 2))

    def answered(self, server: Server) -> None:
        """Record that a server answered."""
        if server.out and not server.is_barred:
            self.take_back(server)
        server.failures, server.rest_s = 0, _REST_S
        server.has_answered = True

    def failed(self, server: Server, why: str, *, at_once: bool = False) -> None:
        """Count a call that a server failed to answer; ``why`` follows its name."""
        server.failures += 1
        others = len(self.replicas.urls) > 1
        if others and (at_once or server.failures >= _OUT_AFTER) and not server.out:
            self._take_out(server, why)
            self._on_out(server)

    def is_gone(self, server: Server) -> None:
        """Record that nothing listens at an address: other weights may come back."""
        if self.replicas.trains and server.has_answered and not server.is_barred:
            server.is_barred = True
            self._take_out(server, _BARRED)

    def take_back(self, server: Server) -> None:
        """Let a server get calls again, until its next failure."""
        logger.info("The model server %s gets calls again.", server.url)
        server.out, server.failures = "", _OUT_AFTER - 1

    def renew(self, url: str) -> None:
        """Record that a server has the current weights: it gets calls again."""
        for server in self._servers:
            if server.url == url:
                server.out, server.is_barred, server.failures = "", False, 0
                server.rest_s = _REST_S

    def _least_busy(self, avoid: Collection[Server]) -> Server | None:
        """Return the least busy server that is ready and not in ``avoid``, or None."""
        now = time.monotonic()
        least: Server | None = None
        for server in self._servers:
            if not server.is_ready(now) or server in avoid:
                continue
            if least is None or server.load < least.load:
                least = server
        return least

    def _resort(self) -> Server:
        """Return the server to ask if no server is ready: the one that waits least."""
        able = [server for server in self._servers if not server.is_barred]
        if not able:
            message = "; ".join(
                f"{server.url} {server.out}" for server in self._servers
            )
            raise NoServerError(f"No model server may answer: {message}.")
        up = [server for server in able if not server.out]
        now = time.monotonic()
        return min(up or able, key=lambda s: (max(s.quiet_until, now), s.turn))

    def _known(self, replicas: Replicas) -> list[Server]:
        if replicas is not self.replicas:
            before = {server.url: server for server in self._servers}
            urls = dict.fromkeys(replicas.urls)
            self._servers = [before.get(url) or Server(url) for url in urls]
            self.replicas = replicas
        return self._servers

    def _take_out(self, server: Server, why: str) -> None:
        server.out = server.was_out = why
        logger.warning("The model server %s gets no calls: it %s.", server.url, why)


class AskAgain(Exception):
    """The server's answer cannot be used, and the request can be sent again."""


class ModelClient:
    """Posts JSON to a model's servers; create it in a running event loop.

    ::

        async for attempt in ServerAttempts(client, session):
            async with attempt.at(replicas):
                response = await attempt.post("chat/completions", data)

    Failed requests are sent again: at once to another server if there is one, else
    after growing waits from ``backoff_s`` to 8 s, or ``Retry-After`` up to a minute.
    ``tries`` limits the attempts of one call, and ``timeout_s`` the time of each.
    """

    def __init__(
        self,
        *,
        tries: int = 4,
        backoff_s: float = 0.5,
        timeout_s: float | None = None,
        proxies: bool = True,
    ) -> None:
        self.tries = tries
        self._proxies = proxies
        self._proxy_of: dict[str, str | None] = {}  # by a server's base URL
        self.backoff_s = backoff_s
        self.pool = ServerPool(self._look_after)
        self._probes: dict[Server, asyncio.Task[None]] = {}
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S),
            headers={"Content-Type": "application/json"},
        )
        self.links = Links(timeout_s, _CONNECT_S)

    async def close(self) -> None:
        """Close the connections."""
        self.links.close()
        for probe in self._probes.values():
            probe.cancel()
        await self.session.close()

    def proxy_for(self, server: Server) -> str | None:
        """Return the URL of the proxy through which a server is asked, if any."""
        if server.url not in self._proxy_of:
            found = environment_proxy(server.url) if self._proxies else None
            self._proxy_of[server.url] = found
        return self._proxy_of[server.url]

    def _look_after(self, server: Server) -> None:
        if server not in self._probes:
            probe = asyncio.get_running_loop().create_task(self._bring_back(server))
            self._probes[server] = probe
            probe.add_done_callback(lambda _: self._probes.pop(server, None))

    async def _bring_back(self, server: Server) -> None:
        """Check a failed server with growing pauses until it may get calls again."""
        while server.out and not server.is_barred:
            await asyncio.sleep(server.rest_s)
            server.rest_s = min(2 * server.rest_s, _LONGEST_REST_S)
            if server.url not in self.pool.replicas.urls:
                return
            if server.out and not server.is_barred and await self._is_well(server):
                self.pool.take_back(server)

    async def _is_well(self, server: Server) -> bool:
        limit = aiohttp.ClientTimeout(total=_PROBE_S)
        replicas = self.pool.replicas
        try:
            async with self.session.get(
                f"{server.url}/models",
                timeout=limit,
                proxy=self.proxy_for(server),
                headers=replicas.headers_of(server.url),
            ) as response:
                if response.status >= 500 or not replicas.trains:
                    return response.status < 500
                listed = await read_answer(response, _MOST_LISTED)
                return _names(replicas.model, listed)
        except (aiohttp.ClientError, TimeoutError) as error:
            if _is_refused(error):
                self.pool.is_gone(server)
            return False


class ServerAttempts:
    """Iterates over the attempts of one call, each at a server chosen by :meth:`at`.

    The last attempt's error is raised from its ``with`` block. Nothing is sent again
    after a part of the answer was passed on: then set ``has_begun``. Calls with the
    same ``session`` prefer one server, which has their prefix cached.
    """

    def __init__(
        self,
        client: ModelClient,
        session: str = "",
        on_retry: Callable[[str], None] = logger.info,
    ) -> None:
        self._client = client
        self._session = session
        self._on_retry = on_retry
        self._tries = self._reached = 0
        self._failed: tuple[Server, ...] = ()  # in this attempt
        self._blamed: tuple[Server, ...] = ()
        self._tried: list[tuple[str, str]] = []
        self._delay = 0.0
        self._is_over = False
        self._since = 0.0
        self._server: Server
        self.has_begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Self:
        if self._is_over:
            raise StopAsyncIteration
        if self._delay:
            await asyncio.sleep(self._delay)
        return self

    @property
    def tried(self) -> str:
        """A sentence with each server's errors; "" if only one server was tried."""
        if len({url for url, _ in self._tried}) < 2:
            return ""
        counts = Counter(self._tried)
        found = (f"{url}: {why} ({n}x)" for (url, why), n in counts.items())
        return "No model server answered. Tried: " + "; ".join(found) + "."

    def at(self, replicas: Replicas) -> Self:
        """Choose one of ``replicas`` for an attempt: ``async with attempt.at(...)``."""
        self._is_over = True  # unless the attempt fails
        pool = self._client.pool
        self._server = pool.choose(replicas, self._session, self._failed)
        return self

    async def __aenter__(self) -> Server:
        self._server.in_flight += 1
        self._since = time.monotonic()
        return self._server

    async def __aexit__(
        self, _: object, error: BaseException | None, *__: object
    ) -> bool:
        self._server.in_flight -= 1
        if error is None:
            return False
        if not isinstance(error, (aiohttp.ClientError, TimeoutError, AskAgain)):
            silent = time.monotonic() - self._since > _SILENT_S
            if silent and not self.has_begun and not isinstance(error, Exception):
                self._blame(f"gave no answer for {_SILENT_S:g} s")
            return False
        if isinstance(error, aiohttp.InvalidURL) and not self._finds_other(0):
            return False
        return self._goes_on(error)

    async def post(
        self, path: str, data: bytes, *, stream: bool = False
    ) -> aiohttp.ClientResponse | WholeAnswer:
        """Send a POST; the caller reports with :meth:`end` whether the answer is valid.

        With ``stream``, return when the answer begins.
        """
        server, pool = self._server, self._client.pool
        url, headers = f"{server.url}/{path}", pool.replicas.headers_of(server.url)
        response: aiohttp.ClientResponse | WholeAnswer
        proxy = self._client.proxy_for(server)
        if not stream and proxy is None and Links.take(url):
            response = await self._client.links.post(url, data, headers)
        else:
            session = self._client.session
            response = await session.post(
                url, data=data, headers=headers, allow_redirects=False, proxy=proxy
            )
        status = response.status
        if stream and status < 400:
            return response
        body = await read_answer(response)
        response = WholeAnswer(status, response.headers, body)
        if reason := _unfit(status, pool.replicas.model, body):
            pool.failed(server, reason, at_once=True)
            if self._finds_other(1):
                raise AskAgain(reason)
        elif status in _PERHAPS_ELSEWHERE and self._finds_other(1):
            raise AskAgain(f"status {status}")
        elif status not in _RETRIED and status >= 400:
            pool.answered(server)
        if status not in _RETRIED:
            return response
        reason = f"status {status}"
        asked = min(_retry_after(response.headers), _RETRY_AFTER_CAP_S)
        if status == 429 or (status == 503 and asked):
            server.quiet_until = time.monotonic() + (asked or self._client.backoff_s)
        elif status >= 500:
            self._blame(f"answered with {reason}")
        if self._finds_other(1) or self._tries + 1 < self._client.tries:
            raise AskAgain(reason)
        self._tried.append((server.url, reason))
        return response

    def end(self, problem: str | None = None) -> None:
        """Record that the answer is valid, or invalid because of ``problem``."""
        if problem is None:
            self._client.pool.answered(self._server)
            return
        self._blame(f"answered with an invalid completion ({problem})")
        if not self.has_begun and self._finds_other(1):
            raise AskAgain(f"answered with an invalid completion ({problem})")

    def _finds_other(self, reached: int) -> bool:
        """Return whether to ask another server at once after this one failed."""
        if self._reached + reached >= _AT_ONCE:
            return False
        return self._client.pool.has_other((*self._failed, self._server))

    def _blame(self, why: str, *, at_once: bool = False) -> None:
        """Count a failure of this attempt's server, at most once per call."""
        if self._server not in self._blamed:
            self._blamed += (self._server,)
            self._client.pool.failed(self._server, why, at_once=at_once)

    def _goes_on(self, error: BaseException) -> bool:
        """Record the error, and return whether another attempt follows."""
        client, server = self._client, self._server
        pool = client.pool
        reason = failure_message(error)
        if isinstance(error, AskAgain):
            reason = str(error)
        else:
            if _is_refused(error):
                pool.is_gone(server)
            self._blame(f"failed ({reason})", at_once=_is_unsent(error))
        self._tried.append((server.url, reason))
        elsewhere = self._finds_other(0 if _is_unsent(error) else 1)
        if self.has_begun or (not elsewhere and self._tries + 1 >= client.tries):
            return False
        self._is_over = False
        message = f"{server.url}: {reason}"
        self._delay = 0.0
        if elsewhere:
            self._failed += (server,)
            self._reached += not _is_unsent(error)
            self._on_retry(f"{message}, trying another server")
            return True
        growing = min(client.backoff_s * 2.0**self._tries, _BACKOFF_CAP_S)
        self._delay = max(growing, pool.wait_s())
        self._delay *= random.uniform(1.0, 1.25)  # spread the retries of many clients
        self._tries += 1
        self._reached, self._failed = 0, ()
        self._on_retry(f"{message}, trying again in {self._delay:.2f} s")
        return True


def _unfit(status: int, model: str, body: bytes) -> str | None:
    """Return why a server can never answer for this model, or None if it may."""
    if status == HTTPStatus.UNAUTHORIZED:
        return f"refuses the key (status {status})"
    if status == HTTPStatus.NOT_FOUND and _names(model, body):
        return f"has no model {model!r}"
    return None


def _names(model: str, body: bytes) -> bool:
    """Return whether an answer's body contains a model's name as a whole word."""
    word = rb"(?<![\w/-])" + re.escape(model.encode()) + rb"(?![\w/-])"
    return re.search(word, body) is not None


def failure_message(error: BaseException) -> str:
    """Describe the error of a request, with a hint if it is about a certificate."""
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        message += CERTIFICATE_HINT
    return message


def _is_refused(error: BaseException) -> bool:
    """Return whether an error means that nothing listens at the server's address."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return False
    return isinstance(error.os_error, ConnectionRefusedError)


def _is_unsent(error: BaseException) -> bool:
    """Return whether an error means that the server did not receive the request."""
    unsent = aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError
    return isinstance(error, (*unsent, aiohttp.InvalidURL))


def overflow_message(body: bytes) -> str | None:
    """Return a server's message that a prompt exceeds the model's context, or None."""
    if not any(mark in body for mark in _TOO_LONG):
        return None
    try:
        said = orjson.loads(body)
    except ValueError:
        said = None
    said = said.get("error", said) if isinstance(said, dict) else None
    said = said.get("message") if isinstance(said, dict) else said
    return str(said or beginning(body.decode(errors="replace"), _SHOWN))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of ``Retry-After``; 0 without it, or for a date."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return 0.0
