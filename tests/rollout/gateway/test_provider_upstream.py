"""The gateway in front of a provider: what goes out, and what comes of failures."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.models.reference import Endpoint
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.stub_server import Handler, StubServer

GOOD: dict[str, Any] = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": [{"type": "text", "text": "Hel"}, {"text": "lo."}],
                "tool_calls": [{"id": "1", "function": {"name": "f"}}],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 11, "completion_tokens": 3},
}


@contextmanager
def provider(server: StubServer, **settings: Any) -> Iterator[Gateway]:
    endpoint = Endpoint((server.endpoint,), "secret", "model-x")
    chosen = GatewaySettings(upstream_backoff_s=0.001, **settings)
    with Store() as store, Gateway(store, policy=endpoint, settings=chosen) as gateway:
        store.create_rollouts([NewRollout(rollout_id="r0", input={})])
        yield gateway


def ask(gateway: Gateway, **body: Any) -> httpx.Response:
    return httpx.post(
        gateway.proxy_url("r0", mode="val") + "/chat/completions",
        json={"model": "x", "messages": [{"role": "user", "content": "hi"}], **body},
        headers={"X-API-Key": gateway.api_key},
        timeout=30,
    )


def always(status: int, body: Any, **headers: str) -> Handler:
    """Return a handler with one answer."""

    async def respond(request: web.Request, _: dict[str, Any]) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status, headers=headers)

    return respond


def in_turn(*handlers: Handler) -> Handler:
    """Return a handler that answers with each in turn, then with the last."""
    left = list(handlers)

    async def respond(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        handler = left.pop(0) if len(left) > 1 else left[0]
        return await handler(request, body)

    return respond


def test_the_request_goes_out_as_it_is_with_the_key() -> None:
    keys: list[str] = []

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        keys.append(request.headers["Authorization"])
        return web.json_response(GOOD)

    with StubServer(respond) as server, provider(server) as gateway:
        assert ask(gateway, top_p=0.9).status_code == 200
        [step] = gateway.store.model_calls("r0")
    [sent] = server.bodies
    assert keys == ["Bearer secret"]
    assert sent == {
        "model": "model-x",
        "messages": [{"role": "user", "content": "hi"}],
        "top_p": 0.9,
    }
    assert (step.prompt_tokens, step.response_tokens) == (11, 3)
    assert (step.content, step.tool_calls[0].name) == ("Hello.", "f")
    assert step.prompt_ids == step.response_ids == []


def test_rate_limits_are_waited_for() -> None:
    limited = always(429, {"error": {}}, **{"Retry-After": "0.01"})
    late = always(429, {}, **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    odd = always(503, {}, **{"Retry-After": "soon"})
    script = in_turn(limited, late, odd, always(200, GOOD))
    with StubServer(script) as server, provider(server) as gateway:
        assert ask(gateway).status_code == 200
        assert gateway.failure is None
    assert len(server.bodies) == 4


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_it(status: int) -> None:
    refuse = always(status, {"error": {"message": "Incorrect API key"}})
    with StubServer(refuse) as server, provider(server) as gateway:
        first, second = ask(gateway), ask(gateway)
        failure = gateway.failure
    assert (first.status_code, second.status_code) == (status, 503)
    assert len(server.bodies) == 1
    assert failure is not None
    assert "Incorrect API key" in failure
    assert "AGENTGYM_API_KEY" in failure
    assert "secret" not in failure


@pytest.mark.parametrize(
    ("status", "error"),
    [(402, {"message": "pay"}), (429, {"code": "insufficient_quota", "message": "x"})],
)
def test_an_empty_account_ends_it(status: int, error: dict[str, str]) -> None:
    refuse = always(status, {"error": error})
    with StubServer(refuse) as server, provider(server, upstream_attempts=1) as gateway:
        ask(gateway)
        assert "requires payment" in str(gateway.failure)


def test_requests_that_are_never_understood_end_it() -> None:
    refuse = always(404, {"error": {"message": "no model model-x"}})
    with StubServer(refuse) as server, provider(server) as gateway:
        for _ in range(5):
            ask(gateway)
        assert "no model model-x" in str(gateway.failure)
    assert len(server.bodies) == 3


@pytest.mark.slow
def test_one_odd_request_among_good_ones_does_not() -> None:
    odd = always(400, {"error": {"message": "content filter"}})
    script = in_turn(always(200, GOOD), odd)
    with StubServer(script) as server, provider(server) as gateway:
        for _ in range(6):
            ask(gateway)
        assert gateway.failure is None


@pytest.mark.parametrize(
    "garbage",
    [
        "<html>",
        "[]",
        "{}",
        '{"choices": []}',
        '{"error": {"message": "upstream is busy"}}',
        '{"choices": [{"message": null}]}',
        '{"choices": [{"message": {"tool_calls": [{"function": {}}]}}]}',
        '{"choices": [{"message": {"tool_calls": "none"}}]}',
        '{"choices": [{"message": {"tool_calls": [{"function": {"name": 1}}]}}]}',
    ],
)
def test_garbage_is_a_failed_call(garbage: str) -> None:
    with StubServer(always(200, garbage)) as server, provider(server) as gateway:
        answer = ask(gateway)
        steps = gateway.store.model_calls("r0")
        assert gateway.failure is None
    assert answer.status_code == 502
    assert steps == []


def test_a_broken_server_is_given_up() -> None:
    with (
        StubServer(always(500, {"error": {"message": "oops"}})) as server,
        provider(server, upstream_attempts=3) as gateway,
    ):
        assert ask(gateway).status_code == 500
        assert gateway.failure is None
    assert len(server.bodies) == 3


@pytest.mark.slow
def test_a_hang_is_a_timeout() -> None:
    async def hang(request: web.Request, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(30)
        return web.json_response(GOOD)

    with (
        StubServer(hang) as server,
        provider(server, upstream_attempts=2, upstream_timeout_s=0.2) as gateway,
    ):
        assert ask(gateway).status_code == 504
    assert len(server.bodies) == 2
