"""LocalHttp: send requests to a server on this machine with little overhead."""

import asyncio
import re
from typing import NamedTuple, Self
from urllib.parse import urlsplit

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


class HttpAnswer(NamedTuple):
    """A response's HTTP status and body."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300


class LocalHttp:
    """Sends HTTP requests, and reuses the connections. Not thread-safe.

    A request takes a fifth of the time that general clients take. The server must send
    the length of each response, and keep connections open, as AgentGym's gateway does.
    Requests must come from the event loop in which the object was made.
    """

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        lines = {"Host": parts.netloc, "Content-Type": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._idle: list[_Connection] = []
        self._loop = asyncio.get_running_loop()

    def is_usable(self) -> bool:
        """Return whether the running event loop is that of the connections."""
        return asyncio.get_running_loop() is self._loop

    @classmethod
    def to(cls, url: str, headers: dict[str, str]) -> Self | None:
        """Return an object for a server on this machine; None for any other."""
        is_local = url.startswith("http://127.0.0.1:")
        return cls(url, headers) if is_local and asyncio._get_running_loop() else None

    async def send(
        self, method: str, path: str, body: bytes = b"", header: str = ""
    ) -> HttpAnswer:
        """Send a request and return its response.

        ``header`` is one more header, as ``Name: value``.

        Raises:
            OSError: The server cannot be reached, or closed the connection.
        """
        more = f"{header}\r\n" if header else ""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{more}"
        sent = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        connection = await self._connected()
        try:
            answer = await connection.exchange(sent)
        except BaseException:  # also if the caller stops waiting
            connection.close()
            raise
        if connection.is_open:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _connected(self) -> "_Connection":
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
        _, connection = await self._loop.create_connection(
            _Connection, self._host, self._port
        )
        return connection


class _Connection(asyncio.Protocol):
    """A connection; it has at most one request at a time."""

    def __init__(self) -> None:
        self.is_open = True
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[HttpAnswer] | None = None

    def exchange(self, request: bytes) -> "asyncio.Future[HttpAnswer]":
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(_END)
        if end < 0:
            return
        head = bytes(self._received[:end])
        length = _LENGTH.search(head)
        if length is None:
            self._fail(ConnectionError("a response without a length"))
            return
        begin = end + len(_END)
        if len(self._received) < begin + int(length[1]):
            return
        body = bytes(self._received[begin:])
        self._received.clear()
        if _CLOSES.search(head):
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(HttpAnswer(int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
