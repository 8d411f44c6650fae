"""Links: persistent connections to HTTP servers, for answers without streaming.

They take less time than aiohttp's client, and raise its errors. aiohttp is still used
for TLS and streaming.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Self, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_reqrep import ConnectionKey
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

MOST_ANSWER = 2**28
"""Most bytes of an answer; one with routed experts has tens of millions of bytes."""

_MOST_HEAD = 65_536
_PORT = 80
_MOST_IDLE_S = 4.0
"""Longest time that a connection waits for a request. Servers close idle ones, vLLM's
after five seconds; a request that was sent at that moment would be lost.
"""
_MOST_HEADS = 512
"""Most heads of requests to keep: each rollout has paths of its own."""


class WholeAnswer:
    """A complete HTTP answer, to use in place of aiohttp's response."""

    __slots__ = ("_body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def is_success(self) -> bool:
        """Whether the status is 200 to 299."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return self._body

    @property
    def text(self) -> str:
        """The body as text."""
        return self._body.decode(errors="replace")

    @property
    def content_type(self) -> str:
        """The answer's media type in lower case, e.g. ``application/json``."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        """Return the body."""
        return self._body


async def read_answer(
    answer: aiohttp.ClientResponse | WholeAnswer, most: int = MOST_ANSWER
) -> bytes:
    """Read the whole body of an answer; raises the errors of :func:`limited`."""
    if isinstance(answer, WholeAnswer):
        return await answer.read()
    parts: list[bytes] = []
    async for part in limited(answer, most):
        parts.append(part)
    return b"".join(parts)


async def limited(
    answer: aiohttp.ClientResponse, most: int = MOST_ANSWER
) -> AsyncGenerator[bytes]:
    """Yield the parts of an answer's body as they arrive."""
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > most:
            raise aiohttp.ClientPayloadError(_too_large(most))
        yield part


def _too_large(most: int) -> str:
    return f"its answer has more than {most:,} bytes"


class _Link(asyncio.Protocol):
    """An HTTP connection that sends one request at a time, and parses its answer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._answer: asyncio.Future[WholeAnswer] | None = None
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._body: list[bytes] = []
        self._head_size = self._size = 0
        self._is_open_ended = False
        self.is_open = False
        self._idle_since = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether the server surely keeps the connection open for a request."""
        return self.is_open and self._loop.time() - self._idle_since < _MOST_IDLE_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not uvloop's base class
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._is_open_ended and exc is None:
            self._done()  # the connection's end is the body's end
        else:
            self._fail(aiohttp.ServerDisconnectedError())
        self.forget()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def ask(self, request: bytes) -> "asyncio.Future[WholeAnswer]":
        assert self._transport is not None
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return self._answer

    def forget(self) -> None:
        """Break the reference cycle with the parser; the connection is idle."""
        self._answer, self._body = None, []
        self._idle_since = self._loop.time()

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # data without a request
            return
        self._head_size += len(data)  # until the head is complete
        try:
            self._parser.feed_data(data)
            if self._head_size > _MOST_HEAD:
                raise HttpParserError("its head has no end")
        except (HttpParserError, HttpParserUpgrade) as error:
            cause = error.__context__ or error
            message = f"its answer is not HTTP: {cause}"
            self._fail(aiohttp.ClientPayloadError(message))
            self.close()
        if self._size > self._most:
            self._fail(aiohttp.ClientPayloadError(_too_large(self._most)))
            self.close()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._headers, self._body, self._size = CIMultiDict(), [], 0
        if self._answer is None or self._answer.done():
            self.close()  # the server sends more than one answer

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        if self._headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ValueError("it is compressed, which was not asked for")
        self._head_size = -sys.maxsize
        ends = "Content-Length", "Transfer-Encoding"
        self._is_open_ended = not any(name in self._headers for name in ends)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        self._head_size, self._is_open_ended = 0, False
        if self._parser.get_status_code() >= HTTPStatus.OK:
            self._done()

    def _done(self) -> None:
        status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.close()
        if self._answer is not None and not self._answer.done():
            body = b"".join(self._body)
            self._answer.set_result(WholeAnswer(status, self._headers, body))

    def _fail(self, error: aiohttp.ClientError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class Links:
    """Sends requests to plain HTTP servers, over persistent connections."""

    def __init__(
        self, timeout_s: float | None, connect_s: float, most: int = MOST_ANSWER
    ) -> None:
        self._timeout_s = timeout_s
        self._most = most
        self._connect_s = connect_s
        self._idle: defaultdict[tuple[str, int], list[_Link]] = defaultdict(list)
        self._heads: dict[tuple[str, ...], tuple[str, int, bytes]] = {}

    @staticmethod
    def take(url: str) -> bool:
        """Return whether a URL is supported: ``http://``, and without a password."""
        return url.startswith("http://") and "@" not in url

    def close(self) -> None:
        """Close idle connections."""
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()

    async def post(
        self, url: str, data: bytes, headers: Mapping[str, str] | None
    ) -> WholeAnswer:
        """Send JSON in a POST, and return the complete answer, as :meth:`send`."""
        return await self.send("POST", url, data, headers)

    async def send(
        self,
        method: str,
        url: str,
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> WholeAnswer:
        """Send a request with a body of JSON, or none; return the complete answer."""
        host, port, head = self._head(method, url, headers)
        request = b"%b%d\r\n\r\n%b" % (head, len(data), data)
        idle = self._idle[host, port]
        link: _Link | None = None
        while idle and link is None:
            if (found := idle.pop()).is_fresh:
                link = found
            else:
                found.close()
        try:
            async with asyncio.timeout(self._timeout_s):
                link = link or await self._connect(host, port)
                answer = await link.ask(request)
        except BaseException:
            if link is not None:
                link.close()
            raise
        finally:
            if link is not None:
                link.forget()
        if link.is_open:
            idle.append(link)
        return answer

    def _head(
        self, method: str, url: str, headers: Mapping[str, str] | None
    ) -> tuple[str, int, bytes]:
        """Return host, port, and a request's head up to ``Content-Length:``, cached."""
        key = method, url, *chain.from_iterable((headers or {}).items())
        if (known := self._heads.get(key)) is not None:
            return known
        if not self.take(url):  # never a key without TLS
            raise aiohttp.InvalidURL(url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            raise aiohttp.InvalidURL(url) from None
        sent = [parts.netloc, parts.path, parts.query]
        if not host or " " in url or not all(text.isascii() for text in sent):
            raise aiohttp.InvalidURL(url)
        if not all(text.isprintable() for text in (*sent, *(headers or {}).values())):
            raise aiohttp.InvalidURL(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += ["Content-Type: application/json", "Accept: */*"]
        lines += ["Accept-Encoding: identity", "User-Agent: agentgym"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        made = "\r\n".join([*lines, "Content-Length: "]).encode()
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[key] = found = host, port, made
        return found

    async def _connect(self, host: str, port: int) -> _Link:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                _, link = await loop.create_connection(
                    lambda: _Link(self._most), host, port
                )
        except TimeoutError:
            message = f"Connection timeout to host {host}:{port}"
            raise aiohttp.ConnectionTimeoutError(message) from None
        except OSError as error:
            key = ConnectionKey(host, port, False, True, None, None, None)
            raise aiohttp.ClientConnectorError(key, error) from error
        return link
