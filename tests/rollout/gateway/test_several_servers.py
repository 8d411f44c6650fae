"""Several servers of one model behind the gateway: real ones, that fail on purpose."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web

from agentgym.core.policy import ServedPolicy
from agentgym.models.reference import Endpoint
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import ModelServer, NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.gateway.test_remote import CHUNKS, HI, ask, frames
from tests.rollout.stub_server import Handler, StubServer, completion

LISTED = (200, json.dumps({"object": "list", "data": [{"id": "m"}]}))
Policy = ServedPolicy | Endpoint | None


@contextmanager
def gateway_of(
    policy: Policy = None, ids: int = 64, **settings: Any
) -> Iterator[Gateway]:
    chosen = GatewaySettings(
        **{"model_name": "m", "upstream_backoff_s": 0.001, **settings}
    )
    with Store() as store, Gateway(store, policy=policy, settings=chosen) as gateway:
        store.create_rollouts(
            [NewRollout(rollout_id=f"r{i}", input={}) for i in range(ids)]
        )
        yield gateway


def endpoint(*servers: StubServer) -> Endpoint:
    return Endpoint(tuple(server.endpoint for server in servers), "", "m")


def post(client: httpx.Client, gateway: Gateway, rollout: int, **body: Any) -> None:
    """Let a rollout make a call, which is answered well."""
    answer = client.post(
        gateway.proxy_url(f"r{rollout}") + "/chat/completions",
        json={"messages": HI, **body},
        headers={"X-API-Key": gateway.api_key},
    )
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."


def ask_each(gateway: Gateway, rollouts: int, first: int = 0) -> None:
    """Let some rollouts make a call, one after the other."""
    with httpx.Client() as client:
        for i in range(first, first + rollouts):
            post(client, gateway, i)


def ask_all(gateway: Gateway, rollouts: int, threads: int | None = None) -> None:
    """Let some rollouts make a call, all at the same time or a few."""
    with httpx.Client() as client, ThreadPoolExecutor(threads or rollouts) as pool:
        list(pool.map(lambda i: post(client, gateway, i), range(rollouts)))


def status(code: int, body: Any = None, **headers: str) -> Handler:
    async def respond(request: web.Request, _: dict[str, Any]) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=code, text=body, content_type="text/html")
        told = body or {"error": {"message": "x"}}
        return web.json_response(told, status=code, headers=headers)

    return respond


async def hang(request: web.Request, body: dict[str, Any]) -> web.Response:
    await asyncio.sleep(60)
    raise AssertionError


async def cut(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Close the connection in place of an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def until(holds: Callable[[], bool]) -> None:
    """Return once something holds; fail after half a minute."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def together(count: int, calls: int) -> Iterator[list[StubServer]]:
    """Yield servers that answer only once all of them together have so many calls."""
    arrived: list[None] = []

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        arrived.append(None)
        while len(arrived) < calls:
            await asyncio.sleep(0.01)
        return web.json_response(completion())

    with ExitStack() as stack:
        yield [stack.enter_context(StubServer(wait)) for _ in range(count)]


@pytest.mark.parametrize("kind", ["registered", "served", "addresses"])
def test_calls_in_flight_are_shared_equally(kind: str) -> None:
    with together(4, 32) as servers:
        urls = [server.endpoint for server in servers]
        policies: dict[str, Policy] = {
            "registered": None,
            "served": ServedPolicy("m", urls, 3),
            "addresses": endpoint(*servers),
        }
        with gateway_of(policies[kind]) as gateway:
            if kind == "registered":
                gateway.store.register_models(
                    ModelServer(model="m", endpoint=url) for url in urls
                )
            ask_all(gateway, 32)
        assert [len(server.bodies) for server in servers] == [8, 8, 8, 8]


@pytest.mark.slow
def test_a_server_that_is_slow_gets_fewer_calls() -> None:
    async def slow(request: web.Request, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.2)
        return web.json_response(completion())

    with (
        StubServer(slow) as one,
        StubServer() as two,
        gateway_of(endpoint(one, two), ids=200) as gateway,
    ):
        ask_all(gateway, 200, threads=4)
        counts = len(one.bodies), len(two.bodies)
    assert sum(counts) == 200
    assert counts[0] < counts[1]


@pytest.mark.slow
def test_a_server_that_dies_gets_no_calls_until_it_is_back() -> None:
    with (
        StubServer() as one,
        StubServer() as two,
        gateway_of(endpoint(one, two), ids=512) as gateway,
    ):
        ask_each(gateway, 16)
        assert [len(one.bodies), len(two.bodies)] == [8, 8]
        one.stop()
        ask_each(gateway, 16)
        ask_each(gateway, 16)
        assert len(one.bodies) == 8
        assert len(two.bodies) == 8 + 32
        events = [e for i in range(16) for e in gateway.store.events(f"r{i}")]
        assert len(events) == 48
        assert sum(e.data["retry_count"] for e in events) == 1  # met the dead one
        with StubServer(port=one.port) as again:
            others = count(16)
            until(lambda: once(gateway, next(others)) and bool(again.bodies))
            before = len(again.bodies), len(two.bodies)
            ask_each(gateway, 16, next(others))
            assert len(again.bodies) == before[0] + 8
            assert len(two.bodies) == before[1] + 8


def once(gateway: Gateway, rollout: int) -> bool:
    ask_each(gateway, 1, rollout)
    return True


@pytest.mark.parametrize(
    "broken",
    [
        status(500, "<h1>Internal Server Error</h1>"),
        status(503),
        cut,
        status(200, "<h1>Welcome to nginx!</h1>"),
        status(200, {"object": "chat.completion", "choices": []}),
        status(302, "moved"),
    ],
    ids=["500 page", "503", "cut", "200 page", "no choices", "moved"],
)
def test_a_server_that_fails_three_calls_in_a_row_is_left_alone(
    broken: Handler,
) -> None:
    with StubServer(broken, models=(500, "")) as one, StubServer() as two:
        with gateway_of(endpoint(one, two)) as gateway:
            ask_each(gateway, 32)
        assert len(one.bodies) == 3
        assert len(two.bodies) == 32


@pytest.mark.slow
def test_a_server_that_hangs_costs_one_try() -> None:
    with (
        StubServer(hang, models=(500, "")) as one,
        StubServer() as two,
        gateway_of(endpoint(one, two), upstream_timeout_s=0.5) as gateway,
    ):
        ask_all(gateway, 16)
        events = [e for i in range(16) for e in gateway.store.events(f"r{i}")]
        hung = len(one.bodies)
        ask_each(gateway, 8)
        assert len(one.bodies) == hung
    assert len(events) == 16
    assert {e.data["http_status"] for e in events} == {200}
    assert {e.data["server"]["endpoint"] for e in events} == {two.endpoint}
    assert max(e.data["retry_count"] for e in events) == 1


def test_a_server_that_asks_for_a_wait_is_spared_and_not_taken_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = status(429, **{"Retry-After": "600"})
    overloaded = status(503, **{"Retry-After": "600"})
    with (
        StubServer(limited) as one,
        StubServer(overloaded) as two,
        StubServer() as three,
        gateway_of(endpoint(one, two, three)) as gateway,
    ):
        ask_each(gateway, 16)
    assert [len(s.bodies) for s in (one, two, three)] == [1, 1, 16]
    assert "gets no calls" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("code", [400, 404, 409, 422])
def test_a_refused_request_is_not_held_against_a_server(code: int) -> None:
    async def picky(request: web.Request, body: dict[str, Any]) -> web.Response:
        if body.get("user") == "odd":
            return web.json_response({"error": {"message": "no"}}, status=code)
        return web.json_response(completion())

    with (
        StubServer(picky) as one,
        StubServer(picky) as two,
        gateway_of(endpoint(one, two), upstream_attempts=2) as gateway,
    ):
        ask_each(gateway, 1)
        for _ in range(8):
            with pytest.raises(openai.APIStatusError):
                ask(gateway, "r0", user="odd")
        one.bodies.clear()
        two.bodies.clear()
        ask_each(gateway, 16)
    assert [len(one.bodies), len(two.bodies)] == [8, 8]


def test_a_request_that_no_server_survives_takes_none_out() -> None:
    async def picky(request: web.Request, body: dict[str, Any]) -> web.Response:
        if body.get("user") == "odd":
            return web.json_response({"error": {"message": "bug"}}, status=500)
        return web.json_response(completion())

    with (
        StubServer(picky) as one,
        StubServer(picky) as two,
        gateway_of(endpoint(one, two), upstream_attempts=4) as gateway,
    ):
        with pytest.raises(
            openai.APIStatusError, match="No model server answered"
        ) as e:
            ask(gateway, "r0", user="odd")
        for server in (one, two):
            assert f"{server.endpoint}: status 500 (4x)" in str(e.value)
            assert len(server.bodies) == 4
            server.bodies.clear()
        assert len(gateway.store.events("r0")) == 1
        ask_each(gateway, 16)
    assert [len(one.bodies), len(two.bodies)] == [8, 8]


def test_where_none_is_left_it_is_said_what_was_tried() -> None:
    with StubServer() as one, StubServer(hang) as two:
        pass
    with gateway_of(endpoint(one, two), upstream_attempts=3) as gateway:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(gateway)
        [event] = gateway.store.events("r0")
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_error"
    told = str(caught.value)
    assert all(f"{server.endpoint}: ClientConnector" in told for server in (one, two))
    assert (event.data["status"], event.data["retry_count"]) == ("error", 3)


def test_an_address_that_is_none_is_left_alone() -> None:
    with StubServer() as server, gateway_of() as gateway:
        gateway.store.register_models(
            ModelServer(model="m", endpoint=url) for url in ("http://", server.endpoint)
        )
        ask_each(gateway, 8)
        assert len(server.bodies) == 8
        events = [e for i in range(8) for e in gateway.store.events(f"r{i}")]
        assert sum(e.data["retry_count"] for e in events) == 1


def test_servers_that_are_all_out_are_asked_as_soon_as_one_is_back() -> None:
    with StubServer() as one, StubServer() as two:
        pass
    with gateway_of(endpoint(one, two), upstream_attempts=1) as gateway:
        for i in range(4):
            with pytest.raises(openai.APIStatusError):
                ask(gateway, f"r{i}")
        with StubServer(port=two.port) as again:
            until(lambda: answers(gateway))
            ask_each(gateway, 8)
            assert len(again.bodies) >= 8


def answers(gateway: Gateway) -> bool:
    try:
        ask(gateway)
    except openai.APIStatusError:
        return False
    return True


# Streams


def streaming(*pieces: bytes) -> Handler:
    """Return a handler that sends the pieces and then breaks off."""

    async def respond(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        await asyncio.sleep(0.1)
        assert request.transport is not None
        request.transport.close()
        return response

    return respond


def stream(gateway: Gateway, rollout_id: str) -> bytes:
    return httpx.post(
        gateway.proxy_url(rollout_id) + "/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}], "stream": True},
        headers={"X-API-Key": gateway.api_key},
    ).content


@pytest.mark.slow
def test_a_stream_is_tried_elsewhere_until_some_of_it_was_passed_on() -> None:
    whole = frames(CHUNKS)
    begun = frames(CHUNKS[:3], done=False)
    with (
        StubServer(streaming()) as silent,
        StubServer(streaming(whole)) as good,
        gateway_of(endpoint(silent, good)) as gateway,
    ):
        assert [stream(gateway, f"r{i}") for i in range(4)] == [whole] * 4
        counts = [len(gateway.store.events(f"r{i}")) for i in range(4)]
        asked = len(silent.bodies), len(good.bodies)
    assert counts == [1] * 4
    assert asked[0] > 0
    assert asked[1] == 4
    with (
        StubServer(streaming(begun)) as broken,
        StubServer(streaming(whole)) as good,
        gateway_of(endpoint(broken, good)) as gateway,
    ):
        answer = stream(gateway, "r0")
        [event] = gateway.store.events("r0")
        assert good.bodies == []
        assert gateway.store.model_calls("r0") == []
    assert answer.startswith(begun)
    assert b"upstream_error" in answer
    assert (event.data["status"], event.data["retry_count"]) == ("error", 0)


# Weights


def test_only_servers_registered_with_the_newest_weights_answer() -> None:
    with StubServer() as old, StubServer() as new, gateway_of() as gateway:
        models = [
            ModelServer(model="m", endpoint=s.endpoint, version=7) for s in (old, new)
        ]
        gateway.store.register_models(models)
        ask_each(gateway, 8)
        assert [len(old.bodies), len(new.bodies)] == [4, 4]
        gateway.store.register_models([models[1].model_copy(update={"version": 8})])
        ask_each(gateway, 8)
        assert [len(old.bodies), len(new.bodies)] == [4, 12]
        versions = [
            gateway.store.model_calls(f"r{i}")[-1].model_version for i in range(8)
        ]
        assert versions == [8] * 8
        gateway.store.register_models([models[0].model_copy(update={"version": 8})])
        ask_each(gateway, 8, 8)
        assert [len(old.bodies), len(new.bodies)] == [8, 16]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["registered", "served"])
def test_a_server_that_was_gone_does_not_answer_with_the_weights_it_starts_with(
    kind: str,
) -> None:
    with StubServer(models=LISTED) as one, StubServer(models=LISTED) as two:
        policy = ServedPolicy("m", [one.endpoint, two.endpoint], 1)
        models = [ModelServer(model="m", endpoint=s.endpoint) for s in (one, two)]
        with gateway_of(policy if kind == "served" else None) as gateway:
            if kind == "registered":
                gateway.store.register_models(models)
            ask_each(gateway, 8)
            one.stop()
            ask_each(gateway, 8)
            with StubServer(port=one.port, models=LISTED) as again:
                time.sleep(2.5)  # long enough to be looked at twice
                ask_each(gateway, 8)
                assert again.bodies == []
                if kind == "served":
                    policy.version = 2
                else:
                    gateway.store.register_models(m.model_copy() for m in models)
                ask_each(gateway, 8, 8)
                assert len(again.bodies) == 4


def test_the_only_server_that_was_gone_is_told_of() -> None:
    with StubServer() as server:
        policy = ServedPolicy("m", [server.endpoint], 1)
        with gateway_of(policy) as gateway:
            ask_each(gateway, 1)
            server.stop()
            with pytest.raises(openai.APIStatusError, match="other weights") as caught:
                ask(gateway)
            assert caught.value.status_code == 503
            assert len(gateway.store.events("r0")) == 2
            with StubServer(port=server.port) as again:
                with pytest.raises(openai.APIStatusError, match="restarted"):
                    ask(gateway)
                assert again.bodies == []
                policy.version = 2
                ask_each(gateway, 1)
                assert len(again.bodies) == 1


@pytest.mark.slow
@pytest.mark.parametrize("listed", ['{"data": []}', '"m-2"', '"m"' + " " * 2**24])
def test_a_server_without_the_model_is_left_alone_until_it_lists_it(
    listed: str,
) -> None:
    unknown = {"error": {"message": "The model `m` does not exist.", "code": 404}}
    with (
        StubServer(status(404, unknown), models=(200, listed)) as one,
        StubServer(models=LISTED) as two,
        gateway_of(ServedPolicy("m", [one.endpoint, two.endpoint], 1)) as gateway,
    ):
        ask_each(gateway, 8)
        until(lambda: one.lists == 2)
        ask_each(gateway, 8)
        assert [len(one.bodies), len(two.bodies)] == [1, 16]


@pytest.mark.parametrize("code", [401, 403, 404])
def test_what_one_server_refuses_another_may_answer(code: int) -> None:
    refusal = {"error": {"message": "Not here.", "code": code}}
    with (
        StubServer(status(code, refusal), models=(code, "no")) as one,
        StubServer() as two,
        gateway_of(endpoint(one, two)) as gateway,
    ):
        ask_each(gateway, 16)
        assert len(two.bodies) == 16
        assert (len(one.bodies) == 1) == (code == 401)
        assert len(gateway.troubles) == (code == 401)


@pytest.mark.parametrize("stream", [False, True])
def test_no_server_is_followed_to_another(stream: bool) -> None:
    with StubServer() as elsewhere, StubServer() as two:
        away = f"{elsewhere.endpoint}/chat/completions"
        moved = status(307, Location=away)
        with (
            StubServer(moved) as one,
            gateway_of(endpoint(one, two)) as gateway,
            httpx.Client() as client,
        ):
            for i in range(4):
                post(client, gateway, i, stream=stream)
            assert (len(two.bodies), elsewhere.bodies) == (4, [])


# Given on the command line


@pytest.mark.parametrize("stream", [False, True])
def test_a_password_in_an_address_goes_there_in_place_of_the_key(stream: bool) -> None:
    keys: list[str | None] = []

    async def keyed(request: web.Request, body: dict[str, Any]) -> web.Response:
        keys.append(request.headers.get("Authorization"))
        return web.json_response(completion())

    with StubServer(keyed) as one, StubServer(keyed) as two:
        urls = one.endpoint.replace("//", "//me:pass@"), two.endpoint
        with (
            gateway_of(upstreams=urls, upstream_key="up") as gateway,
            httpx.Client() as client,
        ):
            for i in range(4):
                post(client, gateway, i, stream=stream)
    assert sorted(map(str, keys)) == ["Basic bWU6cGFzcw=="] * 2 + ["Bearer up"] * 2


def test_servers_of_the_settings_answer_where_none_are_registered() -> None:
    keys: list[str | None] = []

    async def keyed(request: web.Request, body: dict[str, Any]) -> web.Response:
        keys.append(request.headers.get("Authorization"))
        return web.json_response(completion())

    with StubServer(keyed) as one, StubServer(keyed) as two, StubServer(keyed) as three:
        urls = one.endpoint, two.endpoint
        with gateway_of(upstreams=urls, upstream_key="secret") as gateway:
            ask_each(gateway, 8)
            assert [len(one.bodies), len(two.bodies)] == [4, 4]
            assert keys == ["Bearer secret"] * 8
            gateway.store.register_models(
                [ModelServer(model="m", endpoint=three.endpoint)]
            )
            ask_each(gateway, 8)
            assert len(three.bodies) == 8
            assert keys[8:] == [None] * 8
