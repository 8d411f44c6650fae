"""What is malformed gets a 4xx that tells nothing of how the gateway is made."""

import gzip
import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import ModelServer, NewRollout
from agentgym.rollout.store.store import Store
from tests.cycles import only_collected
from tests.rollout.stub_server import Handler, StubServer

KEY = "operator's"
PROXY = "/proxy/rollout/r/attempt/0/mode/train/openai/v1"
CHAT = f"{PROXY}/chat/completions"
ONE = "/api/rollouts/r"
EVENTS = f"{ONE}/attempt/0/events"
FINISH = f"{ONE}/attempt/0/finish"
DEEP = b"[" * 2000 + b"]" * 2000
HI = {"messages": [{"role": "user", "content": "hi"}]}

POST = b"POST /api/rollouts HTTP/1.1\r\nHost: x\r\n"
NOT_JSON = (
    *(b"", b"{", b"nonsense", b"\xff\xfe", b'{"a": NaN}', b'"\\ud800"', DEEP),
    b'[{"input": 1e400}]',
)
BODIES: dict[str, list[Any]] = {
    f"POST {CHAT}": [
        *NOT_JSON,
        [],
        "text",
        {},
        {"messages": "hi"},
        {"messages": []},
        {"messages": [1]},
        {"messages": None},
        HI | {"stream": "yes"},
        HI | {"temperature": "warm"} | {"max_tokens": "many"},
        HI | {"max_tokens": -1},
        HI | {"max_tokens": 1.5},
        HI | {"user": {"name": 1}},
        HI | {"user": "x" * 2000},
        b'{"messages": [{}], "seed": 123456789012345678901234567890}',
    ],
    f"POST {PROXY}/completions": [b"[]", {}, {"prompt": 1}, {"prompt": ""}],
    f"POST {PROXY}/embeddings": [HI],
    "POST /proxy/rollout/r/attempt/0/mode/test/openai/v1/chat/completions": [HI],
    "POST /proxy/rollout/none/attempt/0/mode/train/openai/v1/chat/completions": [HI],
    "POST /proxy/pause": [
        b"{",
        [],
        {"retry_after_seconds": "soon"},
        {"retry_after_seconds": -1},
        {"retry_after_seconds": 10**9},
        {"reason": 1},
    ],
    "POST /api/rollouts": [
        *NOT_JSON,
        {},
        [1],
        [{}],
        [{"input": {}, "is_train": "perhaps"}],
        [{"input": {}, "rollout_id": 1}],
        [{"input": {}, "rollout_id": "a/b"}],
        [{"input": {}, "rollout_id": "x" * 2000}],
        [{"input": {}, "rollout_id": ".."}],
        [{"input": {}, "rollout_id": "terminal"}],
        [{"input": {}, "rollout_id": "claim"}],
        [{"input": {}, "config": "x"}],
        [{"input": {}, "metadata": 1}],
    ],
    "POST /api/rollouts/claim": [b"{", [], {"n": 0}, {"n": "x"}, {"wait_s": -1}],
    f"PATCH {ONE}": [
        b"{",
        [],
        {"status": {"state": "dead"}},
        {"status": {"state": "succeeded"}},
        {"status": {"cancel_requested": True}},
        {"status": {"last_attempt_id": "9" * 5000}},
        {"status": 1},
    ],
    "PATCH /api/rollouts/none": [{"status": {"state": "running"}}],
    f"POST {EVENTS}": [
        *NOT_JSON,
        {},
        {"data": {}},
        {"event_type": 1, "data": {}},
        {"event_type": "note", "data": []},
        {"event_type": "reward", "data": {}},
        {"event_type": "reward", "data": {"value": "high"}},
        {"event_type": "reward", "data": {"value": 1e308}},
        {"event_type": "reward", "data": {"value": -2e9}},
        {"event_type": "model_request", "data": {"response": 1}},
        {"event_type": "model_request", "data": {"response": {"choices": [{}]}}},
    ],
    "POST /api/rollouts/none/attempt/0/events": [{"event_type": "note", "data": {}}],
    f"POST {FINISH}": [
        b"{",
        {},
        {"state": "dead"},
        {"state": "running"},
        {"state": "succeeded"},
        {"state": "failed", "events": [1]},
        {"state": "failed", "reason": "why"},
    ],
    "POST /api/models": [b"{", {}, [{}], [{"model": "m", "endpoint": "no address"}]],
    "POST /healthz": [b""],
    "POST /nowhere": [b""],
    "DELETE /api/rollouts": [b""],
}
PATHS = [
    "/api/rollouts",
    "/api/rollouts?state_in=dead",
    "/api/rollouts?state_in=queuing&limit=many",
    "/api/rollouts?state_in=queuing&wait_s=long",
    "/api/rollouts?state_in=queuing&wait_s=nan",
    "/api/rollouts/terminal?after=x",
    "/api/rollouts/terminal?limit=1e99",
    "/api/rollouts/terminal?after=99999999999999999999999",
    "/api/rollouts/none",
    "/api/rollouts/%FF",
    "/api/rollouts/" + "x" * 2000,
    "/api/rollouts/none/events",
    "/api/rollouts/none/attempt/0/calls",
    f"{ONE}?wait_s=inf",
    CHAT,
    "/proxy/rollout/r/attempt/0/mode/train",
    "/proxy/../../etc/passwd",
    "/",
]
CASES = [("GET", path, b"") for path in PATHS] + [
    (*place.split(" "), body) for place, bodies in BODIES.items() for body in bodies
]
RAW = [
    b"nonsense\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: x\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
]
ENCODED = ["gzip", "deflate", "br"]
INTERNALS = re.compile(
    r"Traceback|\.py|agentgym|aiohttp|pydantic|orjson|sqlite|object at 0x"
    r"|[A-Z][a-z]+[A-Z][a-z]+|Error\b|Exception|/tmp|/home|/usr"
)


@contextmanager
def serving(respond: Handler | None = None, **settings: Any) -> Iterator[Gateway]:
    """Yield a gateway in front of a model server, with rollouts ``r`` and ``good``."""
    chosen = GatewaySettings(api_key=KEY, model_name="m", **settings)
    with (
        StubServer(respond) as server,
        Store() as store,
        Gateway(store, settings=chosen) as gateway,
    ):
        store.register_models(
            [ModelServer(model="m", endpoint=server.endpoint, version=1)]
        )
        ids = ("r", "good")
        store.create_rollouts([NewRollout(rollout_id=i, input={}) for i in ids])
        yield gateway


def client(gateway: Gateway) -> httpx.Client:
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.Client(base_url=gateway.url, headers=headers, timeout=30)


@contextmanager
def others_served(gateway: Gateway) -> Iterator[None]:
    """Have a rollout's model calls answered all the while; each one is a 200."""
    stop = threading.Event()

    def ask() -> list[int]:
        statuses = []
        with client(gateway) as agent:
            while not stop.is_set() or not statuses:
                answer = agent.post(CHAT.replace("/r/", "/good/", 1), json=HI)
                statuses.append(answer.status_code)
        return statuses

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            stop.set()
        assert set(asking.result()) == {200}


def test_every_malformed_request_is_refused_without_internals() -> None:
    assert len(CASES) >= 85
    wrong = []
    with serving() as gateway, others_served(gateway), client(gateway) as api:
        for method, path, body in CASES:
            sent = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = api.request(method, path, **sent)
            status, told = answer.status_code, answer.text
            if not 400 <= status < 500 or INTERNALS.search(told) or not said(answer):
                wrong.append((method, path, body, status, told))
        assert not wrong, "\n".join(map(str, wrong))
        assert gateway.store.events("r") == []


def said(answer: httpx.Response) -> str:
    """Return what an error in OpenAI's shape says."""
    body = answer.json()
    told = body.get("error", {}).get("message") if isinstance(body, dict) else ""
    return str(told)


LONG = f"sk-{'a1b2c3d4' * 30}"


@pytest.mark.parametrize("where", [0, 40, 70])
def test_what_is_shown_of_a_request_cuts_no_secret_in_two(where: int) -> None:
    value = f"{'.' * where}{LONG}"
    cases = [
        ("POST", CHAT, HI | {"stream": value}),
        ("POST", CHAT, HI | {"max_tokens": value}),
        ("POST", CHAT.replace("train", value), HI),
        ("POST", "/api/models", [{"model": "m", "endpoint": f"at {value}"}]),
        ("PATCH", ONE, {"status": {"state": value}}),
        ("POST", EVENTS, {"event_type": "reward", "data": {"value": value}}),
        ("GET", f"/api/rollouts?state_in=queuing&limit={value}", None),
        ("GET", f"/{value}", None),
    ]
    with serving() as gateway, client(gateway) as api:
        for method, path, body in cases:
            answer = api.request(method, path, json=body)
            assert 400 <= answer.status_code < 500
            assert not re.search("a1b2", answer.text), answer.text


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_body_that_is_not_encoded_as_it_says_is_refused(encoding: str) -> None:
    with serving(body_timeout_s=1.0) as gateway, client(gateway) as api:
        headers = {"Content-Encoding": encoding}
        answer = api.post("/api/rollouts", content=b"[]x", headers=headers)
    assert answer.status_code in (400, 408)
    assert not INTERNALS.search(answer.text)


def test_what_is_no_http_is_refused_or_hung_up_on() -> None:
    with serving() as gateway, others_served(gateway):
        for sent in RAW:
            with socket.create_connection(address(gateway), 30) as connection:
                connection.sendall(sent)
                said = read_all(connection)
            status = said.split(b" ", 2)[1] if said else b"400"
            assert status.startswith(b"4"), (sent[:80], said)
            assert not INTERNALS.search(said.partition(b"\r\n\r\n")[2].decode())


def address(gateway: Gateway) -> tuple[str, int]:
    return "127.0.0.1", int(gateway.url.rsplit(":", 1)[1])


def read_all(connection: socket.socket) -> bytes:
    said = b""
    try:
        while piece := connection.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    return said


async def flood(request: web.Request, body: Any) -> web.StreamResponse:
    """Stream more than any buffer holds."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    chunk = b'data: {"choices": [{"delta": {"content": "' + b"x" * 60_000
    for _ in range(2000):
        await response.write(chunk + b'"}}]}\n\n')
    return response


def test_who_reads_no_stream_is_hung_up_on() -> None:
    body = b'{"messages": [{}], "stream": true}'
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with (
        serving(flood, body_timeout_s=0.3) as gateway,
        socket.create_connection(address(gateway), 30) as connection,
    ):
        connection.sendall(head.encode() + body)
        assert connection.recv(12) == b"HTTP/1.1 200"
        passes = threading.Event()
        while gateway.admission.in_flight:  # else the test's own deadline ends it
            passes.wait(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_refused_body_leaves_with_its_answer(encoding: str) -> None:
    body = json.dumps(HI | {"stream": "yes", "more": "x" * 2**16}).encode()
    headers = {"Content-Encoding": encoding} if encoding else {}
    with serving() as gateway, client(gateway) as api, only_collected() as collected:
        for _ in range(5):
            sent = gzip.compress(body) if encoding else body
            assert api.post(CHAT, content=sent, headers=headers).status_code == 400
    assert not [each for each in collected if isinstance(each, ApiError)]
    assert not [each for each in collected if isinstance(each, dict) and "more" in each]


@pytest.mark.parametrize("key", ["", "Authorization: Bearer another\r\n"])
def test_of_who_has_no_key_no_body_is_kept(key: str) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n{key}Content-Length: 50000000\r\n\r\n"
    with (
        serving(body_timeout_s=30.0) as gateway,
        socket.create_connection(address(gateway), 20) as connection,
    ):
        connection.sendall(head.encode() + b"{")
        assert connection.recv(12) == b"HTTP/1.1 401"


@pytest.mark.slow
def test_a_body_that_does_not_come_is_waited_for_once() -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    with (
        serving(body_timeout_s=2.0) as gateway,
        socket.create_connection(address(gateway), 30) as first,
        socket.create_connection(address(gateway), 30) as second,
    ):
        first.sendall(f"{head}Content-Length: 9\r\n\r\n{{".encode())
        time.sleep(1.0)
        second.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\n[".encode())
        ended, _, _ = select.select([first, second], [], [])
        assert ended == [first]
        for connection in (first, second):
            assert read_all(connection).startswith(b"HTTP/1.1 408")


SLOW = [
    b"",
    b"POST /api/rollouts HT",
    POST + b"Authorization: Bearer ",
    f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()
    + b"Content-Length: 1000\r\n\r\n{",
    POST
    + f"Authorization: Bearer {KEY}\r\n".encode()
    + b"Transfer-Encoding: chunked\r\n\r\n5\r\n[",
]


@pytest.mark.slow
def test_300_slow_connections_are_closed_while_others_are_served() -> None:
    deadlines = {"header_timeout_s": 1.0, "body_timeout_s": 1.0}
    with serving(**deadlines) as gateway, others_served(gateway):
        slow = []
        for number in range(300):
            connection = socket.create_connection(address(gateway), 30)
            connection.sendall(SLOW[number % len(SLOW)])
            slow.append(connection)
        ends = []
        for connection in slow:
            with connection:  # until it is closed: else reading times out
                ends.append(read_all(connection))
    assert {end.split(b" ", 2)[1] for end in ends if end} == {b"408"}
    assert ends.count(b"") == 180


@pytest.mark.slow
def test_bytes_that_trickle_in_do_not_put_off_the_end() -> None:
    with (
        serving(header_timeout_s=0.5) as gateway,
        socket.create_connection(address(gateway), 30) as connection,
    ):
        connection.settimeout(0.05)
        said = None
        for piece in f"GET /healthz HTTP/1.1\r\nHost: x\r\nX: {'y' * 1000}".encode():
            try:
                connection.sendall(bytes([piece]))
                said = connection.recv(1)
            except TimeoutError:
                continue
            except OSError:
                said = b""
            break
        assert said == b""
