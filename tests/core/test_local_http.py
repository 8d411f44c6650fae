"""Requests to a server on this machine: kept connections, and what breaks them."""

import asyncio
from contextlib import suppress

import pytest

from agentgym.core.local_http import HttpAnswer, LocalHttp

LARGE = b"x" * 300_000


class Server:
    """Answers each request with its body; some paths do otherwise."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[str] = []

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.heads.append(head.decode())
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            path = head.split()[1]
            if path == b"/hang":
                await asyncio.sleep(0.2)
            if path == b"/vanish":
                break
            more = b"Connection: close\r\n" if path == b"/close" else b""
            size = b"Content-Length: %d\r\n" % len(body)
            if path == b"/endless":
                size = b"Transfer-Encoding: chunked\r\n"
            status = b"400 Bad Request" if path == b"/bad" else b"200 OK"
            writer.write(b"HTTP/1.1 " + status + b"\r\n" + more + size + b"\r\n" + body)


async def test_connections_are_kept_until_they_break() -> None:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    http = LocalHttp(f"http://127.0.0.1:{port}", {"Authorization": "Bearer k"})

    assert await http.send("POST", "/a", LARGE, "X-Agent-ID: me") == HttpAnswer(
        200, LARGE
    )
    assert "Authorization: Bearer k" in server.heads[0]
    assert "X-Agent-ID: me" in server.heads[0]
    assert await http.send("GET", "/bad") == HttpAnswer(400, b"")
    assert server.connections == 1

    await asyncio.gather(*(http.send("POST", "/b", b"y") for _ in range(3)))
    assert server.connections == 3

    for path in ("/vanish", "/endless"):
        with pytest.raises(ConnectionError):
            await http.send("POST", path, b"y")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(http.send("POST", "/hang"), 0.05)
    assert await http.send("POST", "/close", b"z") == HttpAnswer(200, b"z")
    assert await http.send("POST", "/c", b"z") == HttpAnswer(200, b"z")
    assert server.connections == 5  # three broke, and one was closed
    http.close()
    listening.close()


async def test_a_server_that_is_gone_is_an_os_error() -> None:
    with pytest.raises(ConnectionError):
        await LocalHttp("http://127.0.0.1:9", {}).send("GET", "/")


def test_another_event_loop_cannot_use_the_connections() -> None:
    async def make() -> LocalHttp:
        http = LocalHttp("http://127.0.0.1:9", {})
        assert http.is_usable()
        return http

    async def is_usable(http: LocalHttp) -> bool:
        return http.is_usable()

    assert not asyncio.run(is_usable(asyncio.run(make())))
