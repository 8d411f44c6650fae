"""Asking OpenAI-compatible servers: ids and counts kept, refusals and retries."""

from typing import Any

import pytest
from aiohttp import web

from agentgym.models import endpoint
from agentgym.models.reference import Endpoint
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


async def test_counts_of_a_server_without_ids_are_kept() -> None:
    async def respond(_: web.Request, body: dict[str, Any]) -> web.Response:
        answer = completion()
        del answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        return web.json_response(answer)

    with StubServer(respond) as server:
        batch = await run_rollouts(["x"], llm=Endpoint((server.endpoint,), "", "m"))
    (call,) = batch.trajectories[0].model_calls
    assert (call.prompt_ids, call.response_ids, call.logprobs) == ([], [], [])
    stats = batch.trajectories[0].stats()
    assert (stats.prompt_tokens, stats.response_tokens) == (3, 1)
    assert stats.uncounted_calls == 0


@pytest.mark.parametrize(
    ("status", "text", "reason", "asked"),
    [
        (401, "bad key", "refused key: The model server at ", 1),
        (403, "no", "refused key: ", 1),
        (400, "what?", "model: ", 1),
        (503, "busy", "model: ", 4),
        (429, "slow down", "model: ", 4),
        (200, "<html>", "model: ", 1),
        (200, "[1]", "model: ", 1),
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


async def test_server_that_recovers_is_asked_again() -> None:
    async def respond(_: web.Request, body: dict[str, Any]) -> web.Response:
        if len(server.bodies) < 3:
            return web.Response(status=503, text="busy")
        return web.json_response(completion())

    with StubServer(respond) as server:
        batch = await run_rollouts(["x"], llm=f"{server.endpoint}#m")
    assert batch.trajectories[0].answer == "Hello."


async def test_server_that_is_not_there_is_a_reason() -> None:
    batch = await run_rollouts(["x"], llm="http://127.0.0.1:9/v1#m")
    assert str(batch.trajectories[0].reason).startswith(
        "model: The model server at http://127.0.0.1:9/v1 does not answer"
    )
