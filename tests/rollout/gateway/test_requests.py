"""Requests as bytes: several at once, in pieces, with unusual headers."""

import json
import socket
import threading
from typing import Any

import httpx
import pytest

from agentgym.rollout.gateway.gateway import Gateway
from tests.rollout.fake_policy import FakePolicy, say
from tests.rollout.gateway.test_gateway import HI, serving

PATH = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/chat/completions"


def request(gateway: Gateway, body: bytes | None = None, *more: str) -> bytes:
    """Return a model call as the bytes that a client sends."""
    sent = json.dumps({"messages": HI}).encode() if body is None else body
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", *more]
    lines += [f"Authorization: Bearer {gateway.api_key}"]
    lines += [f"Content-Length: {len(sent)}", "", ""]
    return "\r\n".join(lines).encode() + sent


def connect(gateway: Gateway) -> socket.socket:
    port = int(gateway.url.rsplit(":", 1)[1])
    return socket.create_connection(("127.0.0.1", port), 30)


def answers(connection: socket.socket, count: int) -> list[tuple[int, Any]]:
    """Read so many whole answers."""
    file, found = connection.makefile("rb"), []
    for _ in range(count):
        status = int(file.readline().split()[1])
        headers = {}
        while line := file.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        found.append((status, json.loads(file.read(int(headers["content-length"])))))
    return found


def test_calls_that_follow_each_other_at_once_are_answered_in_order() -> None:
    texts = iter(["one", "two", "three"])
    policy = FakePolicy(lambda _: say(next(texts)))
    with serving(policy) as gateway, connect(gateway) as connection:
        connection.sendall(request(gateway) * 3)
        said = answers(connection, 3)
        assert len(gateway.store.model_calls("r")) == 3
    contents = [body["choices"][0]["message"]["content"] for _, body in said]
    assert contents == ["one", "two", "three"]


@pytest.mark.parametrize("size", [1, 7, 300])
def test_a_call_may_come_in_pieces(size: int) -> None:
    with serving() as gateway, connect(gateway) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = request(gateway)
        for place in range(0, len(sent), size):
            connection.sendall(sent[place : place + size])
        [(status, _)] = answers(connection, 1)
        assert status == 200


@pytest.mark.parametrize(
    "more",
    [
        ["Connection: close"],
        ["Cookie: a=b"],
        ["Expect: 100-continue"],
        ["Accept: text/*", "accept: */*"],
        ["X-Agent-ID: planner"],
    ],
)
def test_unusual_headers_change_nothing(more: list[str]) -> None:
    with serving() as gateway, connect(gateway) as connection:
        connection.sendall(request(gateway, None, *more))
        if "Expect" in more[0]:
            assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        [(status, _)] = answers(connection, 1)
        assert status == 200
        [call] = gateway.store.model_calls("r")
        assert call.agent == ("planner" if "planner" in more[0] else "agent")


@pytest.mark.parametrize("name", ["stream", "\\u0073tream"])
def test_a_stream_is_one_wherever_it_is_asked_for(name: str) -> None:
    body = f'{{"messages": {json.dumps(HI)}, "{name}": true}}'.encode()
    with serving() as gateway, connect(gateway) as connection:
        connection.sendall(request(gateway))
        [(status, _)] = answers(connection, 1)
        assert status == 200
        connection.sendall(request(gateway, body))
        said = b""
        while b"[DONE]" not in said:
            said += connection.recv(65_536)
        assert b"text/event-stream" in said
        assert len(gateway.store.model_calls("r")) == 2


def test_refusals_are_those_of_any_other_request() -> None:
    with serving() as gateway, connect(gateway) as connection:
        wrong_key = request(gateway).replace(gateway.api_key.encode(), b"wrong")
        connection.sendall(request(gateway, b"{") + wrong_key + request(gateway))
        statuses = [status for status, _ in answers(connection, 3)]
    assert statuses == [400, 401, 200]


def test_who_hangs_up_frees_the_place() -> None:
    gate = threading.Event()
    with serving(FakePolicy(gate=gate)) as gateway:
        with connect(gateway) as connection:
            connection.sendall(request(gateway))
            passes = threading.Event()
            while not gateway.admission.in_flight:
                passes.wait(0.01)
        while gateway.admission.in_flight:
            passes.wait(0.01)
        gate.set()
        answer = httpx.post(
            gateway.url + PATH,
            json={"messages": HI},
            headers={"Authorization": f"Bearer {gateway.api_key}"},
        )
        assert answer.status_code == 200
