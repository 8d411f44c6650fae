"""Asking OpenAI-compatible servers: ids and counts kept, refusals and retries."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym.errors import UsageError
from agentgym.models import endpoint
from agentgym.rollout import RolloutStatus, run_rollouts
from tests.rollout.stub_server import StubServer, completion


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_BACKOFF_S", 0.001)


async def test_token_ids_of_a_server_are_kept() -> None:
    with StubServer() as server:
        batch = await run_rollouts(
            ["x"], llm=f"{server.endpoint}#m", temperature=0.0, tools=["calculator"]
        )
    (call,) = batch.trajectories[0].model_calls
    assert (call.content, call.prompt_ids, call.response_ids) == (
        "Hello.",
        [1, 2, 3],
        [70_001],
    )
    assert call.logprobs == [-0.5]
    body = server.bodies[0]
    assert (body["model"], body["temperature"]) == ("m", 0.0)
    assert "max_tokens" not in body
    assert body["tools"][0]["function"]["name"] == "calculator"


@pytest.mark.parametrize(
    ("status", "text", "reason", "asked"),
    [
        (401, "bad key", "refused key: The model server at ", 1),
        (400, "what?", "model: ", 1),
        (503, "busy", "model: ", 4),
        (200, "<html>", "model: ", 1),
        (200, "{}", "garbage reply: ", 1),
        (400, "context_length_exceeded", "context_overflow: ", 1),
    ],
)
async def test_what_a_server_answers_becomes_a_reason(
    status: int, text: str, reason: str, asked: int
) -> None:
    async def respond(_: web.Request, body: dict[str, Any]) -> web.Response:
        return web.Response(status=status, text=text)

    with StubServer(respond) as server:
        batch = await run_rollouts(["x"], llm=f"{server.endpoint}#m")
    (found,) = batch.trajectories
    assert found.status is not RolloutStatus.SUCCEEDED
    assert str(found.reason).startswith(reason)
    assert len(server.bodies) == asked


async def test_server_that_is_not_there_is_a_reason() -> None:
    batch = await run_rollouts(["x"], llm="http://127.0.0.1:9/v1#m")
    assert str(batch.trajectories[0].reason).startswith(
        "model: The model server at http://127.0.0.1:9/v1 does not answer"
    )


# Several servers


async def slow(_: web.Request, body: dict[str, Any]) -> web.Response:
    await asyncio.sleep(0.05)
    return web.json_response(completion())


@pytest.mark.slow
async def test_several_servers_share_rollouts_and_stand_in_for_one_that_is_gone() -> (
    None
):
    tasks = [f"task {i}" for i in range(32)]
    with StubServer(slow) as one, StubServer(slow) as two:
        llm = f"{one.endpoint},{two.endpoint}#m"
        batch = await run_rollouts(tasks, llm=llm, concurrency=8)
        assert batch.summary.succeeded == 32
        assert [len(one.bodies), len(two.bodies)] == [16, 16]
        one.stop()
        batch = await run_rollouts(tasks, llm=llm, concurrency=8)
        assert batch.summary.succeeded == 32
        assert len(two.bodies) == 16 + 32
        two.stop()
        batch = await run_rollouts(["x"], llm=llm)
    reason = str(batch.trajectories[0].reason)
    assert "No model server answered. Tried: " in reason
    assert one.endpoint in reason
    assert two.endpoint in reason


# Answers that were given before


async def test_the_same_rollouts_again_ask_the_server_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "cache_requests": tmp_path / "answers",
        "temperature": 0.0,
    }
    with StubServer() as server:
        batches = [
            await run_rollouts(["a", "b"], llm=f"{server.endpoint}#m", **options)
            for _ in range(2)
        ]
    assert len(server.bodies) == 2
    first, again = batches
    for before, after in zip(first.trajectories, again.trajectories, strict=True):
        assert before.model_calls[0].logprobs == after.model_calls[0].logprobs == [-0.5]
        assert before.answer == after.answer
    assert first.cached is not None
    assert first.cached.startswith("0 of 2 requests")
    assert again.cached is not None
    assert again.cached.startswith("2 of 2 requests")


@pytest.mark.parametrize(
    ("llm", "temperature", "told"),
    [
        ("http://127.0.0.1:9/v1#m", None, "temperature is not set"),
        ("http://127.0.0.1:9/v1#m", 0.5, "temperature is 0.5"),
        ("nano", 0.0, "a model that servers answer for"),
    ],
)
async def test_a_cache_that_cannot_be_meant_is_refused(
    tmp_path: Path, llm: str, temperature: float | None, told: str
) -> None:
    options: dict[str, Any] = {"temperature": temperature}
    with pytest.raises(UsageError, match=told):
        await run_rollouts(["x"], llm=llm, cache_requests=tmp_path / "a", **options)


@pytest.mark.parametrize("besides", ["", "elsewhere.example,models.example"])
async def test_a_servers_proxy_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, besides: str
) -> None:
    for name in ("HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", besides)
    with StubServer() as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        far = await run_rollouts(["x"], llm="http://models.example/v1#m")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        near = await run_rollouts(["x"], llm=f"{server.endpoint}#m")
    assert near.trajectories[0].status is not RolloutStatus.DROPPED
    is_dropped = far.trajectories[0].status is RolloutStatus.DROPPED
    assert is_dropped == bool(besides)
    assert len(server.bodies) == (1 if besides else 2)
