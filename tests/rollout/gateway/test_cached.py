"""The gateway in front of a model whose answers at temperature 0 are kept."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.models.answers import AnswerCache
from agentgym.models.reference import Endpoint, weights_of
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.gateway.test_remote import CHUNKS, HI, failing, frames, streaming
from tests.rollout.stub_server import StubServer, completion


@contextmanager
def cached(
    server: StubServer, file: Path, **settings: Any
) -> Iterator[tuple[Gateway, AnswerCache]]:
    endpoint = Endpoint((server.endpoint,), "", "m")
    chosen = GatewaySettings(upstream_backoff_s=0.001, **settings)
    with (
        Store() as store,
        closing(AnswerCache(file, weights_of(endpoint))) as cache,
        Gateway(store, policy=endpoint, settings=chosen, cache=cache) as gateway,
    ):
        store.create_rollouts(
            [NewRollout(rollout_id=f"r{i}", input={}) for i in range(8)]
        )
        yield gateway, cache


def ask(gateway: Gateway, rollout: str = "r0", mode: Any = "val", **body: Any) -> Any:
    return httpx.post(
        gateway.proxy_url(rollout, mode=mode) + "/chat/completions",
        json={"messages": HI, "temperature": 0, **body},
        headers={"X-API-Key": gateway.api_key},
    )


def test_the_same_request_is_answered_once_and_recorded_each_time(
    tmp_path: Path,
) -> None:
    with StubServer() as server, cached(server, tmp_path / "a") as (gateway, cache):
        answers = [ask(gateway, f"r{i}", seed=i) for i in range(4)]
        other = ask(gateway, "r0", max_tokens=5)
        steps = [gateway.store.model_calls(f"r{i}")[0] for i in range(4)]
        where = [gateway.store.events(f"r{i}")[0].data["server"] for i in range(4)]
    assert len(server.bodies) == 2
    assert {answer.content for answer in answers} == {other.content}
    assert answers[0].json() == completion()
    assert (cache.requests, cache.found) == (5, 3)
    assert all(step.prompt_ids == [1, 2, 3] for step in steps)
    assert all(step.response_ids == [70_001] for step in steps)
    assert all(step.logprobs == [-0.5] for step in steps)
    assert {step.finish_reason for step in steps} == {"stop"}
    found = [server["endpoint"] for server in where]
    assert found == [server.endpoint, "cache", "cache", "cache"]


def test_a_stream_comes_again_byte_for_byte(tmp_path: Path) -> None:
    whole = frames(CHUNKS)
    pieces = [whole[i : i + 50] for i in range(0, len(whole), 50)]
    with (
        StubServer(streaming(pieces)) as server,
        cached(server, tmp_path / "a") as (gateway, _),
    ):
        answers = [ask(gateway, f"r{i}", stream=True) for i in range(3)]
        steps = [gateway.store.model_calls(f"r{i}")[0] for i in range(3)]
    assert len(server.bodies) == 1
    for answer, step in zip(answers, steps, strict=True):
        assert answer.content == whole
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert step.response_ids == [10, 11, 12, 13, 14]
        assert step.tool_calls[0].arguments == '{"a": 1}'


@pytest.mark.parametrize(
    "asked", [{"temperature": 0.5}, {"temperature": None}, {"mode": "train"}]
)
def test_what_is_sampled_or_trained_is_never_kept(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    with StubServer() as server, cached(server, tmp_path / "a") as (gateway, cache):
        for _ in range(3):
            assert ask(gateway, **asked).status_code == 200
    assert len(server.bodies) == 3
    assert cache.found == 0


def test_the_temperature_of_the_settings_is_sent_where_the_agent_asks_for_none(
    tmp_path: Path,
) -> None:
    settings = {"provider_temperature": 0.0}
    with (
        StubServer() as server,
        cached(server, tmp_path / "a", **settings) as (gateway, cache),
    ):
        for temperature in (None, None, 0.7):
            ask(gateway, temperature=temperature)
    assert [body["temperature"] for body in server.bodies] == [0.0, 0.7]
    assert (cache.found, cache.others) == (1, 1)


@pytest.mark.slow
def test_errors_and_broken_streams_are_not_kept(tmp_path: Path) -> None:
    with (
        StubServer(failing(400)) as server,
        cached(server, tmp_path / "a") as (gateway, _),
    ):
        assert [ask(gateway).status_code for _ in range(3)] == [400, 200, 200]
        assert len(server.bodies) == 2
    broken = frames(CHUNKS[:3], done=False)
    with (
        StubServer(streaming([broken])) as server,
        cached(server, tmp_path / "b") as (gateway, _),
    ):
        for _ in range(2):
            assert b"upstream_error" in ask(gateway, stream=True).content
        assert len(server.bodies) == 2


@pytest.mark.slow
def test_other_weights_are_asked_anew(tmp_path: Path) -> None:
    def card(root: str, created: int) -> tuple[int, str]:
        found = {"id": "m", "root": root, "created": created}
        return 200, json.dumps({"data": [found, {"id": "other"}]})

    port, asked = 0, []
    for root, created in (("/one", 1), ("/one", 2), ("/two", 3)):
        with StubServer(models=card(root, created), port=port) as server:
            port = server.port
            with cached(server, tmp_path / "a") as (gateway, _):
                ask(gateway)
            asked.append(len(server.bodies))
    assert asked == [1, 0, 1]


@pytest.mark.slow
def test_the_same_request_at_the_same_time_is_made_once(tmp_path: Path) -> None:
    async def slow(request: web.Request, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.3)
        return web.json_response(completion())

    with (
        StubServer(slow) as server,
        cached(server, tmp_path / "a") as (gateway, cache),
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(threads.map(lambda i: ask(gateway, f"r{i}"), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(server.bodies) == 1
    assert cache.found == 7
