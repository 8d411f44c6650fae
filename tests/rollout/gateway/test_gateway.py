"""The gateway with a policy in process, seen through OpenAI's client and raw HTTP."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import Reason
from agentgym.errors import ContextLengthError, EngineError, RolloutError
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import NewRollout, RolloutState
from agentgym.rollout.store.store import Store
from tests.rollout.fake_policy import FakePolicy, call, say

HI: list[Any] = [{"role": "user", "content": "hi"}]
ADD: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
EMOJI = "na\u00efve \U0001f600"


@contextmanager
def serving(
    policy: FakePolicy | None = None, *ids: str, **settings: Any
) -> Iterator[Gateway]:
    """Yield a gateway whose rollouts ``ids`` (by default ``r``) are running."""
    chosen = GatewaySettings(**settings)
    with (
        Store() as store,
        Gateway(store, policy=policy or FakePolicy(), settings=chosen) as gateway,
    ):
        names = ids or ("r",)
        store.create_rollouts([NewRollout(rollout_id=i, input={}) for i in names])
        store.claim("w", len(names))
        yield gateway


def client(gateway: Gateway, rollout_id: str = "r", **where: Any) -> OpenAI:
    return OpenAI(
        base_url=gateway.proxy_url(rollout_id, **where),
        api_key=gateway.api_key,
        max_retries=0,
    )


def http(gateway: Gateway, **options: Any) -> httpx.Client:
    headers = {"Authorization": f"Bearer {gateway.api_key}"}
    return httpx.Client(base_url=gateway.url, headers=headers, **options)


def raise_(error: Exception) -> Any:
    raise error


# Answers


def test_contract_3_the_answer_and_the_record_hold_the_exact_tokens() -> None:
    answer = say(EMOJI, calls=[call()])
    with serving(FakePolicy(lambda _: answer)) as gateway:
        got = client(gateway).chat.completions.create(
            model="any", messages=HI, tools=ADD, logprobs=True
        )
        [step] = gateway.store.model_calls("r")
    extra = got.model_dump()
    assert extra["prompt_token_ids"] == step.prompt_ids == answer.prompt_ids
    choice = extra["choices"][0]
    assert choice["token_ids"] == step.response_ids == answer.response_ids
    told = [token["logprob"] for token in choice["logprobs"]["content"]]
    assert told == step.logprobs == answer.logprobs
    assert choice["message"]["content"] == step.content == EMOJI
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"
    assert step.tool_calls == answer.tool_calls
    assert choice["finish_reason"] == step.finish_reason == "tool_calls"
    assert step.model_version == 7
    assert (step.messages, step.tools) == (HI, ADD)
    assert extra["usage"]["completion_tokens"] == len(answer.response_ids)


def test_log_probabilities_come_only_when_asked_but_are_always_recorded() -> None:
    with serving() as gateway:
        got = client(gateway).chat.completions.create(model="m", messages=HI)
        assert got.choices[0].logprobs is None
        assert gateway.store.model_calls("r")[0].logprobs == say().logprobs


def test_the_model_list_names_the_policy() -> None:
    with serving() as gateway:
        assert [m.id for m in client(gateway).models.list()] == ["fake"]


# Sampling is the gateway's


def test_temperature_is_the_modes_and_tokens_are_capped() -> None:
    policy = FakePolicy()
    settings = {"train_temperature": 0.9, "val_temperature": 0.1, "max_tokens": 50}
    with serving(policy, **settings) as gateway:
        for mode, asked in (("train", 10), ("val", 1000), ("train", None)):
            client(gateway, mode=mode).chat.completions.create(
                model="m", messages=HI, temperature=1.7, max_tokens=asked
            )
        sent = [e.data["request"] for e in gateway.store.events("r")]
    assert [(r.temperature, r.max_tokens) for r in policy.requests] == [
        (0.9, 10),
        (0.1, 50),
        (0.9, 50),
    ]
    assert [r["temperature"] for r in sent] == [0.9, 0.1, 0.9]


def test_without_a_configured_temperature_the_agents_own_counts() -> None:
    policy = FakePolicy()
    with serving(policy, train_temperature=None) as gateway:
        agent = client(gateway)
        agent.chat.completions.create(model="m", messages=HI, temperature=0.3)
        agent.chat.completions.create(model="m", messages=HI)
    assert [r.temperature for r in policy.requests] == [0.3, 1.0]


def seeds(run_seed: int, order: list[str]) -> dict[str, list[int]]:
    """Return the seeds of each agent's calls when agents speak in ``order``."""
    policy = FakePolicy()
    with serving(policy, seed=run_seed) as gateway:
        for agent in order:
            client(gateway).chat.completions.create(model="m", messages=HI, user=agent)
        found: dict[str, list[int]] = {}
        for agent, request in zip(order, policy.requests, strict=True):
            found.setdefault(agent, []).append(request.seed)
    return found


def test_contract_5_seeds_depend_on_the_place_of_a_call_alone() -> None:
    first = seeds(1, ["a", "b", "a", "b"])
    assert first == seeds(1, ["b", "a", "a", "b"])
    values = [seed for each in first.values() for seed in each]
    assert len(set(values)) == 4
    assert set(values).isdisjoint(seeds(2, ["a"])["a"])


def test_the_role_comes_from_header_or_user_field() -> None:
    policy = FakePolicy()
    with serving(policy) as gateway:
        create = client(gateway).chat.completions.create
        create(model="m", messages=HI)
        create(model="m", messages=HI, user="planner")
        create(
            model="m",
            messages=HI,
            user="planner",
            extra_headers={"X-Agent-ID": "coder"},
        )
        agents = [step.agent for step in gateway.store.model_calls("r")]
    assert agents == ["agent", "planner", "coder"]
    assert [r.session for r in policy.requests] == [
        "r/0/agent",
        "r/0/planner",
        "r/0/coder",
    ]


def test_tool_choice_none_offers_no_tools() -> None:
    policy = FakePolicy()
    with serving(policy) as gateway:
        client(gateway).chat.completions.create(
            model="m", messages=HI, tools=ADD, tool_choice="none"
        )
    assert policy.requests[0].tools == []


# Streaming


def test_a_stream_gives_text_ids_and_usage_and_is_recorded_whole() -> None:
    policy = FakePolicy(
        lambda _: say("Hello <b>there</b>"), pieces=["Hello ", "<b>there", "</b>"]
    )
    with serving(policy) as gateway:
        chunks = list(
            client(gateway).chat.completions.create(
                model="m",
                messages=HI,
                stream=True,
                logprobs=True,
                stream_options={"include_usage": True},
            )
        )
        [step] = gateway.store.model_calls("r")
    text = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert len([piece for piece in text if piece]) > 1
    assert "".join(text) == "Hello <b>there</b>" == step.content
    last = chunks[-2].model_dump()
    assert last["prompt_token_ids"] == step.prompt_ids
    assert last["choices"][0]["token_ids"] == step.response_ids
    assert last["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(step.response_ids)


@pytest.mark.parametrize("pieces", [["Let me see."], list("Let me see."), ["Let "], []])
def test_a_streamed_tool_call_follows_the_text(pieces: list[str]) -> None:
    answer = say("Let me see.", calls=[call(arguments='{"a": 1}')])
    with serving(FakePolicy(lambda _: answer, pieces=pieces)) as gateway:
        stream = client(gateway).chat.completions.create(
            model="m", messages=HI, tools=ADD, stream=True
        )
        deltas = [chunk.choices[0].delta for chunk in stream]
    assert "".join(delta.content or "" for delta in deltas) == "Let me see."
    [told] = [c for delta in deltas for c in delta.tool_calls or []]
    assert told.function is not None
    assert (told.id, told.function.arguments) == ("call_add", '{"a": 1}')


def test_a_stream_that_fails_at_once_is_a_plain_error() -> None:
    policy = FakePolicy(lambda _: raise_(ContextLengthError("too long")))
    with serving(policy) as gateway, pytest.raises(openai.BadRequestError) as caught:
        client(gateway).chat.completions.create(model="m", messages=HI, stream=True)
    assert caught.value.code == "context_length_exceeded"


def test_a_stream_that_fails_midway_says_so_in_the_stream() -> None:
    class Breaking(FakePolicy):
        async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
            yield "Hello"
            raise EngineError("out of memory")

    with serving(Breaking()) as gateway:
        stream = client(gateway).chat.completions.create(
            model="m", messages=HI, stream=True
        )
        with pytest.raises(openai.APIError, match="out of memory"):
            list(stream)
        assert gateway.store.model_calls("r") == []
        [event] = gateway.store.events("r")
        assert event.data["http_status"] == 500


# Errors


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextLengthError("9000 tokens"), 400, "context_length_exceeded"),
        (EngineError("no memory"), 500, "engine_error"),
        (RuntimeError("a bug"), 500, "engine_error"),
    ],
)
def test_engine_failures_are_told_and_recorded(
    error: Exception, status: int, code: str
) -> None:
    with serving(FakePolicy(lambda _: raise_(error))) as gateway:
        with pytest.raises(openai.APIStatusError) as caught:
            client(gateway).chat.completions.create(model="m", messages=HI)
        assert caught.value.status_code == status
        assert caught.value.code == code
        assert str(error) in caught.value.message
        [event] = gateway.store.events("r")
        assert (event.data["status"], event.data["http_status"]) == ("error", status)
        assert gateway.store.model_calls("r") == []


def test_the_message_about_a_missing_role_is_whole() -> None:
    body = {"messages": [{"content": "hi"}]}
    with serving() as gateway, http(gateway) as agent:
        answer = agent.post(gateway.proxy_url("r") + "/chat/completions", json=body)
        message = answer.json()["error"]["message"]
        assert message == "messages[0].role = None is not a role, e.g. 'user'."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"messages": "hi"}', "invalid_messages"),
        (b'{"messages": []}', "invalid_messages"),
        (
            b'{"messages": [{"content": [{"type": "image_url", "image_url": {}}]}]}',
            "unsupported_content",
        ),
        (b'{"messages": [{}], "tools": [1]}', "invalid_tools"),
        (b'{"messages": [{}], "max_tokens": 0.5}', "invalid_value"),
        (b'{"messages": [{}], "n": 2}', "unsupported_parameter"),
        (b'{"messages": [{"role": "user"}], "stop": [3]}', "invalid_value"),
        (b'{"messages": [{"role": "user"}], "tool_choice": "look"}', "invalid_value"),
        (
            b'{"messages": [{}], "response_format": {"type": "grammar"}}',
            "unsupported_parameter",
        ),
        (
            b'{"messages": [{}], "response_format": {"type": "json_schema"}}',
            "invalid_value",
        ),
    ],
)
def test_bad_requests_are_refused_and_not_recorded(body: bytes, code: str) -> None:
    with serving() as gateway, http(gateway) as agent:
        answer = agent.post(gateway.proxy_url("r") + "/chat/completions", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == code
        assert gateway.store.events("r") == []


def test_unknown_and_ended_rollouts_and_old_attempts_are_refused() -> None:
    with serving(None, "r", "ended", "retried") as gateway:
        gateway.store.fail("ended", Reason(kind="why"))
        gateway.store.requeue("retried", Reason(kind="why"))
        for rollout_id, status in (("x", 404), ("ended", 409), ("retried", 409)):
            with pytest.raises(openai.APIStatusError) as caught:
                client(gateway, rollout_id).chat.completions.create(
                    model="m", messages=HI
                )
            assert caught.value.status_code == status
        agent = client(gateway, "retried", attempt_id="1")
        assert agent.chat.completions.create(model="m", messages=HI)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/proxy/rollout/r/attempt/0/mode/test/openai/v1/chat/completions", 404),
        ("/proxy/rollout/r/attempt/0/mode/train/openai/v1/embeddings", 404),
        ("/proxy/rollout/r/attempt/0/mode/train/openai/v1/completions", 404),
        ("/nowhere", 404),
        ("/healthz", 405),
    ],
)
def test_wrong_paths_get_an_error_object(path: str, status: int) -> None:
    with serving() as gateway, http(gateway) as agent:
        answer = agent.post(path, json={"messages": HI, "prompt": "hi"})
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


def test_a_body_over_the_limit_is_refused() -> None:
    with serving(max_body_bytes=1000) as gateway, http(gateway) as agent:
        answer = agent.post(
            gateway.proxy_url("r") + "/chat/completions", content=b"x" * 2000
        )
        assert answer.status_code == 413
        assert answer.json()["error"]


# The key


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
def test_either_header_takes_the_key(header: str) -> None:
    with serving(api_key="secret") as gateway:
        value = "Bearer secret" if header == "Authorization" else "secret"
        assert httpx.get(
            f"{gateway.url}/proxy/state", headers={header: value}
        ).is_success


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "secret"},
        {"X-API-Key": "secre"},
        {"X-API-Key": "\u00fc".encode("latin-1").decode("latin-1")},
    ],
)
def test_a_wrong_key_is_refused(headers: dict[str, str]) -> None:
    with serving(api_key="secret") as gateway:
        encoded = {k: v.encode("latin-1") for k, v in headers.items()}
        for path in ("/proxy/state", "/api/rollouts?state_in=queuing", "/nowhere"):
            answer = httpx.get(gateway.url + path, headers=encoded)
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "authentication_error"
        assert httpx.get(gateway.url + "/healthz").json() == {"status": "ok"}


def test_keys_are_random_unless_given_and_an_empty_one_asks_for_none() -> None:
    with serving() as one, serving() as other:
        assert len(one.api_key) > 20
        assert one.api_key != other.api_key
    with serving(api_key="") as gateway:
        assert httpx.get(f"{gateway.url}/proxy/state").is_success


# Limits


async def test_calls_beyond_the_limit_wait() -> None:
    gate = threading.Event()
    policy = FakePolicy(gate=gate)
    with serving(policy, max_in_flight=2) as gateway:
        loop = asyncio.get_running_loop()
        async with AsyncOpenAI(
            base_url=gateway.proxy_url("r"), api_key=gateway.api_key, max_retries=0
        ) as agent:

            def ask() -> asyncio.Task[Any]:
                return asyncio.create_task(
                    agent.chat.completions.create(model="m", messages=HI)
                )

            tasks = [ask() for _ in range(3)]
            while gateway.admission.in_flight < 2:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert len(policy.requests) == 2
            gate.set()
            answers = await asyncio.gather(*tasks)
        assert len(answers) == len(policy.requests) == 3
        assert gateway.admission.in_flight == 0
        assert loop.is_running()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_hangs_up_frees_its_place(stream: bool) -> None:
    gate = threading.Event()
    with serving(FakePolicy(gate=gate), max_in_flight=1) as gateway:
        async with AsyncOpenAI(
            base_url=gateway.proxy_url("r"), api_key=gateway.api_key, max_retries=0
        ) as agent:
            create = agent.chat.completions.create
            task = asyncio.create_task(create(model="m", messages=HI, stream=stream))
            while not gateway.admission.in_flight:
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            while gateway.admission.in_flight:
                await asyncio.sleep(0.005)
            assert gateway.store.events("r") == []
            gate.set()
            assert await create(model="m", messages=HI)


@pytest.mark.slow
async def test_512_calls_are_in_flight_at_once() -> None:
    gate = threading.Event()
    policy = FakePolicy(gate=gate)
    with serving(policy) as gateway:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"X-API-Key": gateway.api_key},
        ) as agent:
            url = gateway.proxy_url("r") + "/chat/completions"
            tasks = [
                asyncio.create_task(agent.post(url, json={"messages": HI}))
                for _ in range(600)
            ]
            while len(policy.requests) < 512 or gateway.admission.waiting < 88:
                await asyncio.sleep(0.01)
            assert len(policy.requests) == gateway.admission.in_flight == 512
            gate.set()
            answers = await asyncio.gather(*tasks)
        assert {answer.status for answer in answers} == {200}
        assert len(gateway.store.model_calls("r")) == 600


def test_a_paused_gateway_refuses_new_calls_until_resumed() -> None:
    with serving() as gateway, http(gateway) as trainer:
        paused = trainer.post(
            "/proxy/pause", json={"retry_after_seconds": 3, "reason": "update"}
        )
        assert paused.json() == {
            "paused": True,
            "retry_after_seconds": 3,
            "reason": "update",
            "inflight": 0,
        }
        with pytest.raises(openai.RateLimitError, match="update") as caught:
            client(gateway).chat.completions.create(model="m", messages=HI)
        headers = caught.value.response.headers
        assert (headers["Retry-After"], headers["X-Agl-Paused"]) == ("3", "true")
        assert trainer.get("/proxy/state").json()["paused"]
        assert not trainer.post("/proxy/resume").json()["paused"]
        assert client(gateway).chat.completions.create(model="m", messages=HI)


# Opening and closing


def test_everything_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    for turn in range(3):
        with Store(path) as store, Gateway(store, policy=FakePolicy()) as gateway:
            store.create_rollouts([NewRollout(rollout_id="r", input={})])
            store.claim("w")
            client(gateway).chat.completions.create(model="m", messages=HI)
            assert len(store.model_calls("r")) == turn + 1
    with sqlite3.connect(path) as database:
        (calls,) = database.execute("SELECT count(*) FROM events").fetchone()
    assert calls == 3


def test_closing_cuts_off_who_waits() -> None:
    with Store() as store:
        gateway = Gateway(store, policy=FakePolicy(gate=threading.Event())).start()
        store.create_rollouts([NewRollout(rollout_id="r", input={})])
        errors: list[Exception] = []

        def wait() -> None:
            try:
                client(gateway).chat.completions.create(model="m", messages=HI)
            except openai.APIError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while not gateway.admission.in_flight:
            pass
        gateway.close()
        thread.join(10)
        assert errors
        assert store.get("r").status.state is RolloutState.QUEUING


def test_a_taken_port_is_an_error() -> None:
    with serving() as gateway, Store() as store:
        port = int(gateway.url.rsplit(":", 1)[1])
        with pytest.raises(RolloutError, match=f"Port {port} of 127.0.0.1 is taken"):
            Gateway(store, settings=GatewaySettings(port=port)).start()


async def test_calls_beyond_the_limit_wait_and_then_are_refused() -> None:
    gate = threading.Event()
    policy = FakePolicy(gate=gate)
    with serving(policy, max_in_flight=2, max_waiting=1) as gateway:
        async with AsyncOpenAI(
            base_url=gateway.proxy_url("r"), api_key=gateway.api_key, max_retries=0
        ) as agent:

            def ask() -> asyncio.Task[Any]:
                return asyncio.create_task(
                    agent.chat.completions.create(model="m", messages=HI)
                )

            tasks = [ask() for _ in range(3)]
            while gateway.admission.in_flight < 2 or not gateway.admission.waiting:
                await asyncio.sleep(0.005)
            with pytest.raises(openai.RateLimitError) as caught:
                await ask()
            assert int(caught.value.response.headers["Retry-After"]) >= 1
            assert len(policy.requests) == 2
            gate.set()
            answers = await asyncio.gather(*tasks)
        assert len(answers) == len(policy.requests) == 3
        assert gateway.admission.in_flight == 0
