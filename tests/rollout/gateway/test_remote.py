"""The gateway in front of remote model servers."""

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import trustme
from aiohttp import web
from openai import OpenAI

from agentgym.core.policy import ServedPolicy
from agentgym.models.reference import Endpoint
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.gateway.upstream import Exchange
from agentgym.rollout.store.records import ModelServer, NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.stub_server import StubServer, completion

HI: list[Any] = [{"role": "user", "content": "hi"}]


@contextmanager
def forwarding(
    *servers: StubServer,
    ids: int = 1,
    policy: ServedPolicy | Endpoint | None = None,
    **settings: Any,
) -> Iterator[Gateway]:
    """Yield a gateway before servers that are registered, unless a policy is given."""
    chosen = GatewaySettings(model_name="m", upstream_backoff_s=0.001, **settings)
    with Store() as store, Gateway(store, policy=policy, settings=chosen) as gateway:
        store.create_rollouts(
            [NewRollout(rollout_id=f"r{i}", input={}) for i in range(ids)]
        )
        store.register_models(
            [ModelServer(model="m", endpoint=s.endpoint, version=3) for s in servers]
        )
        yield gateway


def client(gateway: Gateway, rollout_id: str = "r0") -> OpenAI:
    return OpenAI(
        base_url=gateway.proxy_url(rollout_id), api_key=gateway.api_key, max_retries=0
    )


def ask(gateway: Gateway, rollout_id: str = "r0", **body: Any) -> Any:
    return client(gateway, rollout_id).chat.completions.create(
        **{"model": "x", "messages": HI, **body}
    )


def post(gateway: Gateway, **body: Any) -> httpx.Response:
    """Return the response to a call, as it is sent."""
    url = gateway.proxy_url("r0") + "/chat/completions"
    headers = {"X-API-Key": gateway.api_key}
    return httpx.post(url, json={"messages": HI, **body}, headers=headers)


def test_a_call_is_forwarded_with_ids_asked_for_and_recorded() -> None:
    with StubServer() as server, forwarding(server, train_temperature=0.8) as gateway:
        answer = ask(gateway, temperature=0.1)
        [step] = gateway.store.model_calls("r0")
        [event] = gateway.store.events("r0")
    [sent] = server.bodies
    assert (sent["model"], sent["temperature"]) == ("m", 0.8)
    assert sent["return_token_ids"] is sent["logprobs"] is True
    assert answer.choices[0].message.content == step.content == "Hello."
    assert answer.model_extra["prompt_token_ids"] == step.prompt_ids == [1, 2, 3]
    assert (step.response_ids, step.logprobs) == ([70_001], [-0.5])
    assert step.model_version == 3
    assert event.data["response"] == completion()
    assert event.data["server"]["endpoint"] == server.endpoint


@pytest.mark.parametrize("is_known", [True, False])
def test_a_server_is_spoken_to_over_tls(is_known: bool) -> None:
    authority, context = (
        trustme.CA(),
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
    )
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if is_known:  # its own default was made when it was imported
        authority.configure_trust(aiohttp.connector._SSL_CONTEXT_VERIFIED)
    with StubServer(tls=context) as server, forwarding(server) as gateway:
        if is_known:
            assert ask(gateway).choices[0].message.content == "Hello."
            return
        with pytest.raises(openai.APIStatusError, match="SSL_CERT_FILE names the file"):
            ask(gateway)
    assert server.bodies == []


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({}, 50),
        ({"max_tokens": 10}, 10),
        ({"max_tokens": 1000}, 50),
        ({"max_completion_tokens": 20}, 20),
        ({"max_completion_tokens": 1000, "max_tokens": 10}, 50),
    ],
)
def test_a_server_is_told_how_many_tokens_to_sample(
    asked: dict[str, int], sent: int
) -> None:
    with StubServer() as server, forwarding(server, max_tokens=50) as gateway:
        ask(gateway, **asked)
    [body] = server.bodies
    assert body["max_tokens"] == sent
    assert "max_completion_tokens" not in body


def test_a_server_is_asked_for_nothing_that_forces_tokens() -> None:
    function = {"name": "look", "parameters": {"type": "object"}}
    tool = {"type": "function", "function": {**function, "strict": True}}
    with StubServer() as server:
        policy = ServedPolicy("m", [server.endpoint])
        with forwarding(policy=policy) as gateway:
            ask(gateway, tools=[tool], tool_choice="required", top_p=0.5)
    [body] = server.bodies
    assert body["tools"] == [{"type": "function", "function": function}]
    assert not {"tool_choice", "top_p"} & set(body)


def test_a_policys_template_variables_go_with_each_request() -> None:
    variables = {"enable_thinking": False, "effort": "low"}
    with StubServer() as server:
        policy = ServedPolicy("m", [server.endpoint], template_variables=variables)
        with forwarding(policy=policy) as gateway:
            ask(gateway, extra_body={"chat_template_kwargs": {"effort": "high"}})
    [body] = server.bodies
    assert body["chat_template_kwargs"] == {**variables, "effort": "high"}


def test_a_limit_of_tokens_that_is_none_is_refused() -> None:
    with StubServer() as server, forwarding(server) as gateway:
        with pytest.raises(openai.BadRequestError, match="is not a positive"):
            ask(gateway, max_tokens=-1)
        assert gateway.store.events("r0") == []
    assert server.bodies == []


def test_contract_5_a_server_is_told_the_seed_of_each_call() -> None:
    def seeds(run_seed: int) -> list[int]:
        with StubServer() as server, forwarding(server, seed=run_seed) as gateway:
            for _ in range(2):
                ask(gateway, seed=7)
        return [body["seed"] for body in server.bodies]

    first, other = seeds(1), seeds(2)
    assert first == seeds(1)
    assert len({*first, *other}) == 4
    assert all(0 <= seed < 2**63 for seed in first)


def test_validation_asks_for_no_log_probabilities() -> None:
    with StubServer() as server, forwarding(server, val_temperature=0.2) as gateway:
        httpx.post(
            gateway.proxy_url("r0", mode="val") + "/chat/completions",
            json={"messages": HI},
            headers={"X-API-Key": gateway.api_key},
        )
    assert "logprobs" not in server.bodies[0]
    assert server.bodies[0]["temperature"] == 0.2


@pytest.mark.slow
@pytest.mark.parametrize("registered", [True, False])
def test_a_rollout_stays_with_its_server(registered: bool) -> None:
    with StubServer() as one, StubServer() as two:
        servers = (one, two)
        policy = ServedPolicy("m", [server.endpoint for server in servers])
        where = {} if registered else {"policy": policy}
        with forwarding(*servers, ids=16, **where) as gateway:
            for _ in range(3):
                for i in range(16):
                    ask(gateway, f"r{i}", user=f"r{i}")
        asked = [{body["user"] for body in server.bodies} for server in servers]
    assert asked[0]
    assert asked[1]
    assert asked[0].isdisjoint(asked[1])


def test_a_served_policy_is_asked_at_its_servers_and_recorded_with_its_version() -> (
    None
):
    keys: list[str] = []

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        keys.append(request.headers["Authorization"])
        return web.json_response(completion())

    with StubServer(respond) as server:
        policy = ServedPolicy("adapter-1", [server.endpoint], 1, api_key="secret")
        with forwarding(policy=policy, train_temperature=0.8) as gateway:
            assert gateway.model_name == "adapter-1"
            ask(gateway)
            policy.model_name, policy.version = "adapter-2", 2
            ask(gateway)
            models = [model.id for model in client(gateway).models.list()]
            steps = gateway.store.model_calls("r0")
            events = gateway.store.events("r0")
    assert keys == ["Bearer secret"] * 2
    assert models == ["adapter-2"]
    assert [body["model"] for body in server.bodies] == ["adapter-1", "adapter-2"]
    assert {body["temperature"] for body in server.bodies} == {0.8}
    assert all(b["return_token_ids"] and b["logprobs"] for b in server.bodies)
    assert [step.model_version for step in steps] == [1, 2]
    assert (steps[0].prompt_ids, steps[0].response_ids) == ([1, 2, 3], [70_001])
    assert steps[0].logprobs == [-0.5]
    assert events[0].data["server"]["endpoint"] == server.endpoint
    assert "secret" not in str([event.data for event in events])


def test_the_version_is_the_one_that_was_asked() -> None:
    policy = ServedPolicy("m", [], 1)

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        policy.version = 2
        return web.json_response(completion())

    with StubServer(respond) as server:
        policy.servers.append(server.endpoint)
        with forwarding(policy=policy) as gateway:
            ask(gateway)
            [step] = gateway.store.model_calls("r0")
    assert step.model_version == 1


def test_a_served_policy_takes_no_other_servers_and_needs_its_own() -> None:
    with forwarding(policy=ServedPolicy("m", [])) as gateway:
        refused = httpx.post(
            f"{gateway.url}/api/models",
            json=[{"model": "m", "endpoint": "http://other"}],
            headers={"X-API-Key": gateway.api_key},
        )
        assert refused.status_code == 409
        with pytest.raises(openai.APIStatusError, match="No servers available") as told:
            ask(gateway)
        assert told.value.status_code == 503


def failing(*statuses: int) -> Callable[..., Any]:
    """Return a handler that answers with ``statuses`` first, then well."""
    left = list(statuses)

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        if left:
            return web.json_response({"error": {"message": "x"}}, status=left.pop(0))
        return web.json_response(completion())

    return respond


def test_transient_errors_are_retried() -> None:
    with StubServer(failing(503, 429, 408)) as server, forwarding(server) as gateway:
        assert ask(gateway).choices[0].message.content == "Hello."
        [event] = gateway.store.events("r0")
    assert event.data["retry_count"] == 3


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (404, 1), (500, 3)])
def test_lasting_errors_are_passed_on_and_recorded(status: int, tries: int) -> None:
    with StubServer(failing(*[status] * 9)) as server:
        with forwarding(server, upstream_attempts=3) as gateway:
            with pytest.raises(openai.APIStatusError) as caught:
                ask(gateway)
            assert caught.value.status_code == status
            [event] = gateway.store.events("r0")
            assert event.data["status"] == "error"
            assert event.data["response"] == {"error": {"message": "x"}}
            assert gateway.store.model_calls("r0") == []
        assert len(server.bodies) == tries


def test_a_server_that_is_gone_is_a_502() -> None:
    with StubServer() as server:
        pass
    with forwarding(server, upstream_attempts=2) as gateway:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(gateway)
        assert caught.value.status_code == 502
        assert caught.value.code == "upstream_error"
        with pytest.raises(openai.APIStatusError):
            ask(gateway, stream=True)
        assert [e.data["http_status"] for e in gateway.store.events("r0")] == [502, 502]


def test_a_server_that_hangs_is_a_504() -> None:
    async def hang(request: web.Request, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    settings: dict[str, Any] = {"upstream_attempts": 1, "upstream_timeout_s": 0.1}
    with StubServer(hang) as server, forwarding(server, **settings) as gateway:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(gateway)
        assert caught.value.status_code == 504


def test_an_answer_that_is_no_json_is_a_502() -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(text="<html>")

    with StubServer(respond) as server, forwarding(server) as gateway:
        with pytest.raises(openai.APIStatusError, match="<html>") as caught:
            ask(gateway)
        assert caught.value.status_code == 502


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_with_a_number_that_nobody_can_read_back_is_a_502(
    stream: bool,
) -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        text = json.dumps(chunk({}) if stream else completion())
        text = text[:-1] + ', "seconds": 1e400}'
        if stream:
            return await streaming([f"data: {text}\n\n".encode()])(request, body)
        return web.Response(text=text, content_type="application/json")

    with StubServer(respond) as server, forwarding(server) as gateway:
        with pytest.raises(openai.APIStatusError, match="infinity") as caught:
            ask(gateway, stream=stream)
        assert caught.value.status_code == 502
        [event] = gateway.store.events("r0")
        assert event.data["http_status"] == 502


def test_no_server_is_a_503() -> None:
    with forwarding() as gateway:
        for stream in (False, True):
            with pytest.raises(openai.APIStatusError, match="/api/models") as caught:
                ask(gateway, stream=stream)
            assert caught.value.status_code == 503


def test_text_completions_are_forwarded() -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        choice = {
            "index": 0,
            "text": "Hi",
            "logprobs": {"token_logprobs": [-1, -2.5]},
            "prompt_token_ids": [9],
            "token_ids": [4, 5],
        }
        return web.json_response({"choices": [choice]})

    with StubServer(respond) as server, forwarding(server) as gateway:
        httpx.post(
            gateway.proxy_url("r0") + "/completions",
            json={"prompt": "x"},
            headers={"X-API-Key": gateway.api_key},
        )
        [step] = gateway.store.model_calls("r0")
        [event] = gateway.store.events("r0")
    assert (step.content, step.prompt_ids, step.response_ids) == ("Hi", [9], [4, 5])
    assert step.logprobs == [-1.0, -2.5]
    assert event.data["response"]["choices"][0]["prompt_token_ids"] == [9]


def test_routed_experts_are_recorded_and_not_passed_on() -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response(completion(routed_experts=[[1, 2]]))

    with StubServer(respond) as server, forwarding(server) as gateway:
        answer = ask(gateway)
        [event] = gateway.store.events("r0")
    assert "routed_experts" not in answer.model_dump_json()
    assert event.data["routed_experts"] == [[1, 2]]


# A conversation that is longer than the model's context

TOO_LONG = "This model's maximum context length is 4096 tokens, not 5000."
OVERFLOWS = [
    {"error": {"message": TOO_LONG, "type": "BadRequestError", "code": 400}},
    {"object": "error", "message": TOO_LONG, "code": 400},
    {"error": {"message": "no", "code": "context_length_exceeded"}},
    {"error": "context_length_exceeded"},
    TOO_LONG,
]


def overflowing(body: Any) -> Callable[..., Any]:
    async def respond(request: web.Request, _: dict[str, Any]) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=400, text=body)
        return web.json_response(body, status=400)

    return respond


@contextmanager
def answering(server: StubServer, kind: str) -> Iterator[Gateway]:
    """Yield a gateway before one server of a kind."""
    policies = {
        "registered": None,
        "served": ServedPolicy("m", [server.endpoint]),
        "provider": Endpoint((server.endpoint,), "", "m"),
    }
    with forwarding(server, policy=policies[kind]) as gateway:
        yield gateway


@pytest.mark.parametrize("kind", ["registered", "served", "provider"])
@pytest.mark.parametrize("body", OVERFLOWS)
def test_a_servers_context_overflow_is_told_as_openai_does(
    body: Any, kind: str
) -> None:
    with StubServer(overflowing(body)) as server, answering(server, kind) as gateway:
        for stream in [False] * 4 + [True] * 4:
            with pytest.raises(openai.BadRequestError) as caught:
                ask(gateway, stream=stream)
            assert caught.value.code == "context_length_exceeded"
        assert gateway.failure is None
        events = gateway.store.events("r0")
        assert gateway.store.model_calls("r0") == []
    assert len(server.bodies) == len(events) == 8
    said = TOO_LONG if TOO_LONG in str(body) else str(caught.value.message)
    for event in (events[0], events[-1]):
        call = event.call
        assert call is not None
        assert call.error["message"] in said
        assert call.error["code"] == "context_length_exceeded"
        assert (event.data["http_status"], event.data["status"]) == (400, "error")


@pytest.mark.parametrize("kind", ["registered", "provider"])
def test_other_refusals_are_passed_on_as_they_are(kind: str) -> None:
    body = {"error": {"message": "no such tool", "code": "invalid_tools"}}
    with StubServer(overflowing(body)) as server, answering(server, kind) as gateway:
        with pytest.raises(openai.BadRequestError, match="no such tool") as caught:
            ask(gateway)
        assert caught.value.code == "invalid_tools"
        [event] = gateway.store.events("r0")
        assert event.data["response"] == body


# Streaming


def chunk(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}],
    }


def call_delta(**fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, **fields}]}


CHUNKS = [
    {**chunk({"role": "assistant", "content": ""}), "prompt_token_ids": [1, 2]},
    chunk(
        {"content": "Caf"},
        token_ids=[10],
        logprobs={"content": [{"token": "Caf", "logprob": -0.1}]},
    ),
    chunk(
        {"content": "\u00e9"},
        token_ids=[11, 12],
        logprobs={
            "content": [
                {"token": "a", "logprob": -0.2},
                {"token": "b", "logprob": -0.3},
            ]
        },
    ),
    chunk(
        call_delta(id="c1", type="function", function={"name": "add", "arguments": ""})
    ),
    chunk(call_delta(function={"arguments": '{"a"'})),
    chunk(call_delta(function={"arguments": ": 1}"}), token_ids=[13]),
    chunk({}, finish_reason="tool_calls", token_ids=[14]),
    {
        "id": "c",
        "choices": [],
        "usage": {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7},
    },
]


def streaming(frames: list[bytes], pause: float = 0.0) -> Callable[..., Any]:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in frames:
            await response.write(piece)
            await asyncio.sleep(pause)
        return response

    return respond


def frames(chunks: list[dict[str, Any]], *, done: bool = True) -> bytes:
    lines = [b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks]
    return b"".join([b": a comment\n\n", *lines, b"data: [DONE]\n\n" if done else b""])


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_contract_3_a_stream_passes_untouched_and_is_recorded_exactly(
    size: int,
) -> None:
    whole = frames(CHUNKS)
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    with StubServer(streaming(pieces)) as server, forwarding(server) as gateway:
        answer = post(gateway, stream=True)
        [step] = gateway.store.model_calls("r0")
        [event] = gateway.store.events("r0")
    assert answer.content == whole
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert server.bodies[0]["return_token_ids"]
    assert step.prompt_ids == [1, 2]
    assert step.response_ids == [10, 11, 12, 13, 14]
    assert step.logprobs == [-0.1, -0.2, -0.3]
    assert step.content == "Caf\u00e9"
    [call] = step.tool_calls
    assert (call.id, call.name, call.arguments) == ("c1", "add", '{"a": 1}')
    assert step.finish_reason == "tool_calls"
    assert event.data["usage"]["total_tokens"] == 7
    assert event.data["response"]["object"] == "chat.completion"


def test_a_stream_whose_last_byte_comes_late_is_passed_on_to_its_end() -> None:
    whole = frames(CHUNKS)
    pieces = [whole[:-1], whole[-1:]]
    with (
        StubServer(streaming(pieces, pause=0.1)) as server,
        forwarding(server) as gateway,
    ):
        answer = post(gateway, stream=True)
        assert answer.content == whole
        assert len(gateway.store.model_calls("r0")) == 1


def test_a_stream_that_breaks_off_is_an_error_not_an_answer() -> None:
    whole = frames(CHUNKS[:3], done=False)
    with StubServer(streaming([whole])) as server, forwarding(server) as gateway:
        with pytest.raises(openai.APIError, match="ended before"):
            list(ask(gateway, stream=True))
        assert gateway.store.model_calls("r0") == []
        [event] = gateway.store.events("r0")
        assert event.data["http_status"] == 502


@pytest.mark.parametrize("begun", [0, 3])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "out of memory", "code": 503}, 503),
        ({"message": "out of memory", "code": "oom"}, 502),
        ({"message": "out of memory", "code": 7}, 502),
        ("out of memory", 502),
    ],
)
def test_a_stream_that_ends_with_an_error_is_no_answer(
    error: Any, status: int, begun: int
) -> None:
    whole = frames([*CHUNKS[:begun], {"error": error}])
    with StubServer(streaming([whole])) as server, forwarding(server) as gateway:
        answer = post(gateway, stream=True)
        assert gateway.store.model_calls("r0") == []
        [event] = gateway.store.events("r0")
    assert answer.content == whole
    assert event.data["status"] == "error"
    assert event.data["http_status"] == status
    assert event.data["response"]["error"] == error


@pytest.mark.parametrize("size", [150, 190, 500])
@pytest.mark.parametrize("kind", ["json", "text", "stream"])
def test_an_error_of_a_server_tells_no_secret(kind: str, size: int) -> None:
    said = f"{'.' * size}sk-{'a1b2c3d4' * 30}"
    error = {"error": {"message": said, "code": 418}}

    async def respond(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if kind == "stream":
            return await streaming([frames([*CHUNKS[:2], error])])(request, body)
        text = json.dumps(error) if kind == "json" else said
        return web.Response(status=418, text=text)

    with StubServer(respond) as server, forwarding(server) as gateway:
        answer = post(gateway, stream=kind == "stream")
    assert "..." in answer.text
    assert "a1b2" not in answer.text


@pytest.mark.parametrize("begun", [0, 3])
@pytest.mark.parametrize("index", ["a", [1], 1.5])
def test_a_tool_call_whose_place_is_none_is_an_error_that_is_recorded(
    index: Any, begun: int
) -> None:
    calls = [{"index": index, "function": {}}, {"index": 0, "function": {}}]
    whole = [frames([each], done=False) for each in CHUNKS[:begun]]
    whole += [frames([chunk({"tool_calls": calls})])]
    with StubServer(streaming(whole, 0.05)) as server, forwarding(server) as gateway:
        with pytest.raises(openai.APIError, match="unknown shape"):
            list(ask(gateway, stream=True))
        [event] = gateway.store.events("r0")
        assert event.data["http_status"] == 502


@pytest.mark.parametrize("place", [{}, {"index": None}])
def test_tool_calls_that_a_server_does_not_count_stay_apart(
    place: dict[str, Any],
) -> None:
    def part(**fields: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [{**place, **fields}]})

    add = {"name": "add", "arguments": '{"a"'}
    chunks = [
        part(id="c1", function=add),
        part(function={"arguments": ": 1}"}),
        part(id="c2", function={"name": "sub", "arguments": "{}"}),
        chunk({}, finish_reason="tool_calls"),
    ]
    with (
        StubServer(streaming([frames(chunks)])) as server,
        forwarding(server) as gateway,
    ):
        post(gateway, stream=True).raise_for_status()
        [event] = gateway.store.events("r0")
    calls = event.data["response"]["choices"][0]["message"]["tool_calls"]
    assert [(c["id"], c["function"]) for c in calls] == [
        ("c1", {"name": "add", "arguments": '{"a": 1}'}),
        ("c2", {"name": "sub", "arguments": "{}"}),
    ]


def test_a_stream_that_fails_of_itself_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("inner words")

    monkeypatch.setattr(Exchange, "answer", fail)
    with (
        StubServer(streaming([frames(CHUNKS)])) as server,
        forwarding(server) as gateway,
    ):
        answer = post(gateway, stream=True)
    *_, last = answer.text.strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "internal_error"
    assert "inner words" not in answer.text


def test_a_stream_that_says_that_there_is_no_error_is_an_answer() -> None:
    chunks = [{**c, "error": None} for c in CHUNKS]
    server = StubServer(streaming([frames(chunks)]))
    with server, forwarding(server) as gateway:
        list(ask(gateway, stream=True))
        [step] = gateway.store.model_calls("r0")
    assert step.content == "Caf\u00e9"


def test_an_error_instead_of_a_stream_keeps_its_status() -> None:
    with StubServer(failing(400)) as server, forwarding(server) as gateway:
        with pytest.raises(openai.BadRequestError):
            ask(gateway, stream=True)
        [event] = gateway.store.events("r0")
        assert event.data["http_status"] == 400


def test_a_server_that_does_not_stream_is_passed_on_as_it_answers() -> None:
    with StubServer() as server, forwarding(server) as gateway:
        answer = post(gateway, stream=True)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == completion()
        assert len(gateway.store.model_calls("r0")) == 1


@pytest.mark.parametrize("kind", ["registered", "provider"])
@pytest.mark.parametrize("size", [20, 100_000])
@pytest.mark.parametrize("begun", [0, 3])
def test_a_context_overflow_within_a_stream_is_one_too(
    begun: int, size: int, kind: str
) -> None:
    whole = frames([*CHUNKS[:begun], {"error": {"message": TOO_LONG, "code": 400}}])
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    with StubServer(streaming(pieces)) as server, answering(server, kind) as gateway:
        with pytest.raises(openai.APIError, match="maximum context length") as caught:
            list(ask(gateway, stream=True))
        assert caught.value.code == "context_length_exceeded"
        [event] = gateway.store.events("r0")
    assert event.data["http_status"] == 400
    assert event.data["response"]["error"]["code"] == "context_length_exceeded"
