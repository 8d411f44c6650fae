"""Links: kept connections to model servers, for requests whose answer comes whole.

A request is written with one call, and read with little around it. What needs more
(TLS, streams) goes over aiohttp's client, whose errors are raised here as well.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Self, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict

_END = b"\r\n\r\n"
_MOST_HEAD = 65_536
_PORT = 80
_NO_BODY = frozenset({204, 304})


class WholeAnswer:
    """An answer that has come whole; what is used of aiohttp's response.

    Attributes:
        status: HTTP status.
        headers: As they came.
    """

    __slots__ = ("_body", "headers", "status")

    def __init__(self, status: int, headers: "CIMultiDict[str]", body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def content_type(self) -> str:
        """Its media type."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        """Return the body."""
        return self._body


class _Link(asyncio.Protocol):
    """A connection: one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answer: asyncio.Future[WholeAnswer] | None = None
        self._head: tuple[int, CIMultiDict[str], int] | None = None
        self._length: int | None = None
        self._is_chunked = False
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._head is not None and self._length is None and exc is None:
            self._done(len(self._buffer))  # the end of the connection is the body's
        elif self._answer is not None and not self._answer.done():
            error = aiohttp.ServerDisconnectedError()
            self._answer.set_exception(error)

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def ask(self, request: bytes) -> "asyncio.Future[WholeAnswer]":
        assert self._transport is not None
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # it speaks unasked
            return
        self._buffer += data
        try:
            self._read()
        except ValueError as error:
            told = aiohttp.ClientPayloadError(f"its answer is no HTTP: {error}")
            self._answer.set_exception(told)
            self.close()

    def _read(self) -> None:
        """Take what of the answer has come."""
        while self._head is None:
            end = self._buffer.find(_END)
            if end < 0:
                if len(self._buffer) > _MOST_HEAD:
                    raise ValueError("its head has no end")
                return
            status, headers = _read_head(bytes(self._buffer[:end]))
            if status >= 200:
                self._head = status, headers, end + len(_END)
                self._begin(status, headers)
            else:
                del self._buffer[: end + len(_END)]
        at = self._head[2]
        if self._is_chunked:
            if (body := _joined(self._buffer, at)) is not None:
                self._done(len(self._buffer), body)
        elif self._length is not None and len(self._buffer) >= at + self._length:
            self._done(at + self._length)

    def _begin(self, status: int, headers: "CIMultiDict[str]") -> None:
        coding = headers.get("Transfer-Encoding", "").lower()
        self._is_chunked = coding == "chunked"
        if coding not in ("", "chunked"):
            raise ValueError(f"its transfer encoding is {coding!r:.40}")
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ValueError("it is compressed, which was not asked for")
        length = headers.get("Content-Length")
        if status in _NO_BODY:
            length = "0"
        if length is not None and not (length.isascii() and length.isdecimal()):
            raise ValueError(f"its length is {length!r:.40}")
        self._length = None if length is None else int(length)

    def _done(self, end: int, body: bytes | None = None) -> None:
        assert self._head is not None
        status, headers, at = self._head
        kept = self.is_open and "close" not in headers.get("Connection", "").lower()
        if not kept or len(self._buffer) > end:
            self.close()
        whole = bytes(self._buffer[at:end]) if body is None else body
        self._buffer.clear()
        answer, self._head = self._answer, None
        self._length, self._is_chunked = None, False
        if answer is not None and not answer.done():
            answer.set_result(WholeAnswer(status, headers, whole))


class Links:
    """Posts over kept connections to plain HTTP servers.

    Args:
        timeout_s: Of one request; None waits for ever.
        connect_s: Of connecting.
    """

    def __init__(self, timeout_s: float | None, connect_s: float) -> None:
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._idle: defaultdict[tuple[str, int], list[_Link]] = defaultdict(list)
        self._heads: dict[tuple[str, str], tuple[str, int, bytes]] = {}

    @staticmethod
    def take(url: str) -> bool:
        """Say whether requests to an address can go this way."""
        return url.startswith("http://") and "@" not in url

    def close(self) -> None:
        """Close the connections that are not in use."""
        for links in self._idle.values():
            for link in links:
                link.close()
        self._idle.clear()

    async def post(
        self, url: str, data: bytes, headers: Mapping[str, str] | None
    ) -> WholeAnswer:
        """Send JSON; return once the answer is there.

        Raises:
            aiohttp.ClientError: There was no whole answer.
            TimeoutError: It did not come in time.
        """
        host, port, head = self._head(url, headers)
        request = b"%b%d\r\n\r\n%b" % (head, len(data), data)
        idle = self._idle[host, port]
        link: _Link | None = None
        while idle and link is None:
            link = found if (found := idle.pop()).is_open else None
        try:
            async with asyncio.timeout(self._timeout_s):
                link = link or await self._connect(host, port)
                answer = await link.ask(request)
        except BaseException:
            if link is not None:
                link.close()
            raise
        if link.is_open:
            idle.append(link)
        return answer

    def _head(
        self, url: str, headers: Mapping[str, str] | None
    ) -> tuple[str, int, bytes]:
        """Return where to send, and what before the length of the body."""
        key = url, (headers or {}).get("Authorization", "")
        if (known := self._heads.get(key)) is not None:
            return known
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            raise aiohttp.InvalidURL(url) from None
        sent = [parts.netloc, parts.path, parts.query, *(headers or {}).values()]
        if (
            not host
            or " " in url
            or not all(text.isascii() and text.isprintable() for text in sent)
        ):
            raise aiohttp.InvalidURL(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {path} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += ["Content-Type: application/json", "Accept: */*"]
        lines += ["Accept-Encoding: identity", "User-Agent: agentgym"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        made = "\r\n".join([*lines, "Content-Length: "]).encode("ascii")
        self._heads[key] = found = host, port, made
        return found

    async def _connect(self, host: str, port: int) -> _Link:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                _, link = await loop.create_connection(_Link, host, port)
        except TimeoutError:
            told = f"Connection timeout to host {host}:{port}"
            raise aiohttp.ConnectionTimeoutError(told) from None
        except OSError as error:
            key = ConnectionKey(host, port, False, True, None, None, None)
            raise aiohttp.ClientConnectorError(key, error) from error
        return link


def _read_head(head: bytes) -> tuple[int, "CIMultiDict[str]"]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise ValueError(f"it begins with {first!r:.60}")
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"a header is {line!r:.60}")
        headers.add(name, value.strip(" \t"))
    if version == "HTTP/1.0":
        headers.setdefault("Connection", "close")
    return int(status), headers


def _joined(buffer: bytearray, at: int) -> bytes | None:
    """Return the body that came in chunks, None while there is more to come."""
    parts: list[bytes] = []
    while (line := buffer.find(b"\r\n", at)) >= 0:
        size = int(bytes(buffer[at:line]).partition(b";")[0], 16)
        begin = line + 2
        if size == 0:
            end = (
                begin if buffer.startswith(b"\r\n", begin) else buffer.find(_END, begin)
            )
            return b"".join(parts) if end >= 0 else None
        if len(buffer) < begin + size + 2:
            return None
        parts.append(bytes(buffer[begin : begin + size]))
        at = begin + size + 2
    return None
