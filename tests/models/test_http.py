"""The client that asks model servers, through real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agentgym.models import http
from agentgym.models.http import ModelClient, Replicas, ServerAttempts, overflow_message
from tests.rollout.stub_server import Handler, StubServer


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep
    monkeypatch.setattr(http.asyncio, "sleep", lambda _: sleep(0))


def wait(told: str) -> float:
    """Return the seconds that the client said it would wait."""
    return float(told.rpartition(" in ")[2].removesuffix(" s"))


def answers(*statuses: int, **headers: str) -> Handler:
    """Return a handler that answers with each status in turn, the last one for ever."""
    left = list(statuses)

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        status = left.pop(0) if len(left) > 1 else left[0]
        return web.json_response({"status": status}, status=status, headers=headers)

    return respond


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[ModelClient]:
    client = ModelClient(**options)
    try:
        yield client
    finally:
        await client.close()


async def send(
    client: ModelClient,
    url: str,
    told: list[str] | None = None,
    *,
    stream: bool = False,
) -> tuple[int, bytes]:
    """Return the status and the body of the answer to one call."""
    heard = [] if told is None else told
    async for attempt in ServerAttempts(client, "session", heard.append):
        async with attempt.at(Replicas((url,), "m")):
            response = await attempt.post("chat/completions", b"{}", stream=stream)
            attempt.has_begun = stream
            return response.status, await response.read()
    raise AssertionError("the last try returns or raises")


async def post(server: StubServer, **options: Any) -> tuple[int, list[str]]:
    """Return the status of the answer, and what was said of each further try."""
    told: list[str] = []
    async with opened(**options) as client:
        status, body = await send(client, server.endpoint, told)
        assert json.loads(body) == {"status": status}
        return status, told


@pytest.mark.parametrize("status", [429, 503])
async def test_what_may_succeed_later_is_tried_again(status: int) -> None:
    with StubServer(answers(status, status, 200)) as server:
        answer, told = await post(server)
    assert answer == 200
    assert len(server.bodies) == 3
    assert [f"status {status}, trying again in" in line for line in told] == [True] * 2


@pytest.mark.parametrize("status", [400, 404])
async def test_what_never_succeeds_is_asked_once(status: int) -> None:
    with StubServer(answers(status)) as server:
        assert await post(server) == (status, [])


async def test_waits_double_up_to_a_bound() -> None:
    with StubServer(answers(500)) as server:
        _, told = await post(server, tries=8, backoff_s=1.0)
    for line, least in zip(told, [1, 2, 4, 8, 8, 8, 8], strict=True):
        assert least <= wait(line) <= 1.25 * least


@pytest.mark.parametrize(
    ("said", "least"),
    [
        ("30", 30.0),
        ("3600", 60.0),
        ("soon", 0.5),
    ],
)
async def test_a_wait_that_is_asked_for_is_kept_up_to_a_minute(
    said: str, least: float
) -> None:
    with StubServer(answers(429, 200, **{"Retry-After": said})) as server:
        _, [told] = await post(server)
    assert least <= wait(told) <= 1.26 * least


def broken_off(times: int) -> Callable[..., Any]:
    """Return a handler whose first answers end before they are whole."""
    left = [True] * times

    async def respond(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "14"})
        await answer.prepare(request)
        await answer.write(b'{"status": 200}'[: 5 if left else 15])
        if left:
            left.pop()
            assert request.transport is not None
            request.transport.close()
        return answer

    return respond


async def test_a_broken_answer_is_asked_for_again_unless_some_was_passed_on() -> None:
    with StubServer(broken_off(1)) as server:
        async with opened() as client:
            _, whole = await send(client, server.endpoint)
            assert len(whole) == 14
        assert len(server.bodies) == 2
    with StubServer(broken_off(1)) as server:
        async with opened() as client:
            with pytest.raises(aiohttp.ClientPayloadError):
                await send(client, server.endpoint, stream=True)
        assert len(server.bodies) == 1


async def test_a_try_has_a_time_limit() -> None:
    gate = asyncio.Event()

    async def hang(request: web.Request, body: dict[str, Any]) -> web.Response:
        await gate.wait()
        raise AssertionError

    with StubServer(hang) as server:
        async with opened(tries=2, timeout_s=0.1) as client:
            with pytest.raises(TimeoutError):
                await send(client, server.endpoint)
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            b'{"error": {"message": "too long", "code": "context_length_exceeded"}}',
            "too",
        ),
        (b'{"error": "maximum context length"}', "maximum"),
        (b"the maximum context length is 5", "the maximum"),
        (b'{"error": {"message": "no such model"}}', None),
        (b"", None),
    ],
)
def test_a_prompt_that_is_too_long_is_seen(body: bytes, told: str | None) -> None:
    found = overflow_message(body)
    assert found is None if told is None else str(found).startswith(told)
