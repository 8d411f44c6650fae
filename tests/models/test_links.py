"""Answers over kept connections, whatever form a server gives them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from agentgym.models.links import Links, read_answer

WHOLE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)
BY_BYTE = 10_000
"""Longer answers than all but the endless ones here; their rest comes at once."""
Script = Callable[[int], bytes]


@asynccontextmanager
async def server(script: Script, *, hangs_up: bool = False) -> AsyncIterator[list[str]]:
    """Answer request number N with ``script(N)``; yield the address and who came."""
    seen: list[str] = [""]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append("connection")
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
                await reader.readexactly(length)
                seen.append("request")
                said = script(seen.count("request"))
                for byte in said[:BY_BYTE]:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0)
                writer.write(said[BY_BYTE:])
                if hangs_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen[0] = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/x"
    async with listening:
        yield seen


async def test_a_request_has_its_method_and_headers() -> None:
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                heads.append(head.decode())
                writer.write(WHOLE)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/x"
    links = Links(30, 30)
    async with listening:
        for role in ("Prüfer", "writer"):  # same address and key
            answer = await links.send("GET", url, headers={"X-Agent-ID": role})
            assert answer.is_success
            assert heads[-1].startswith("GET /x HTTP/1.1")
            assert f"X-Agent-ID: {role}\r\n" in heads[-1]
        with pytest.raises(aiohttp.InvalidURL):
            await links.send("GET", url, headers={"X-Agent-ID": "a\r\nb: c"})
        links.close()


async def test_a_connection_is_kept() -> None:
    links = Links(30, 30)
    async with server(lambda _: WHOLE) as seen:
        for _ in range(3):
            async with await links.post(seen[0], b"{}", None) as answer:
                assert (answer.status, await answer.read()) == (200, b"{}")
                assert answer.content_type == "application/json"
        assert seen[1:] == ["connection", *["request"] * 3]
        links.close()


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"one two"),
        (b"HTTP/1.0 429 Slow\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
async def test_every_form_of_an_answer_is_read(said: bytes, body: bytes) -> None:
    if b"chunked" in said:
        said += b"3;a=b\r\none\r\n4\r\n two\r\n0\r\nTrailer: x\r\n\r\n"
    links = Links(30, 30)
    async with server(lambda _: said) as seen:
        for _ in range(2):
            answer = await links.post(seen[0], b"{}", {"Authorization": "Bearer k"})
            assert await answer.read() == body
        if answer.status == 429:
            assert answer.headers["retry-after"] == "3"
        links.close()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
async def test_what_is_no_whole_answer_is_an_error(said: bytes) -> None:
    links = Links(30, 30)
    async with server(lambda _: said, hangs_up=True) as seen:
        with pytest.raises(aiohttp.ClientError):
            await links.post(seen[0], b"{}", None)


async def test_a_server_that_says_more_than_it_was_asked_is_left() -> None:
    links = Links(30, 30)
    async with server(lambda _: WHOLE + WHOLE) as seen:
        for _ in range(2):
            assert await (await links.post(seen[0], b"{}", None)).read() == b"{}"
            await asyncio.sleep(0.1)
        assert seen.count("connection") == 2


async def test_a_connection_that_its_server_may_soon_close_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentgym.models.links._MOST_IDLE_S", 0.05)
    links = Links(30, 30)
    async with server(lambda _: WHOLE) as seen:
        for wait_s in (0.0, 0.1, 0.0):
            await asyncio.sleep(wait_s)
            await links.post(seen[0], b"{}", None)
        links.close()
    assert seen[1:] == [*["connection", "request"] * 2, "request"]


async def test_silence_has_an_end_and_closes_the_connection() -> None:
    links = Links(0.1, 30)
    async with server(lambda _: b"HTTP/1.1 200") as seen:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await links.post(seen[0], b"{}", None)
        assert seen.count("connection") == 2


async def test_who_cannot_be_reached_is_told_from_who_has_no_address() -> None:
    links = Links(5, 5)
    async with server(lambda _: WHOLE) as seen:
        url = seen[0]
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await links.post(url, b"{}", None)
    assert isinstance(caught.value.os_error, ConnectionRefusedError)
    for wrong in ("http://", "http://a b/", "http://x:port/", "http://x/\r\nEvil: 1"):
        with pytest.raises(aiohttp.InvalidURL):
            await links.post(wrong, b"{}", None)
    assert not Links.take("https://x/v1")
    with pytest.raises(aiohttp.InvalidURL):
        await Links(5, 5).post("https://x/v1", b"{}", None)


async def test_an_answer_without_an_end_is_cut_off() -> None:
    links = Links(30, 30, most=2**20)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    async with server(lambda _: head + b" " * 2**21) as seen:
        with pytest.raises(aiohttp.ClientPayloadError, match="1,048,576 bytes"):
            await links.post(seen[0], b"{}", None)


async def test_a_streamed_answer_without_an_end_is_cut_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    async with (
        server(lambda _: head + b" " * 2**21) as seen,
        aiohttp.ClientSession() as session,
        session.post(seen[0]) as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError, match="1,048,576 bytes"):
            await read_answer(answer, most=2**20)
