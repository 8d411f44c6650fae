"""Nonsense over the wire fails its own request; no other rollout notices."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.core.policy import ServedPolicy
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.runner import UNREADABLE, RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.fake_policy import FakePolicy
from tests.rollout.sessions import requests, session
from tests.rollout.stub_server import StubServer, completion

GOOD = [f"good-{i}" for i in range(8)]
TURNS = 5
HI = [{"role": "user", "content": "hi"}]
DEEP = b"[" * 250 + b"]" * 250

# What an agent sends as a model call: a body, and headers. More of such bodies are in
# test_malformed.
HELLO = b'{"messages": [{"role": "user", "content": "hi"}], "x": %s}'
CALLS: list[tuple[bytes, dict[str, bytes]]] = [
    (HELLO % b"18446744073709551616", {}),
    (HELLO % b"-9223372036854775809", {}),
    (HELLO % DEEP, {}),
    (json.dumps({"messages": HI}).encode(), {"X-Agent-ID": b"caf\xe9"}),
]


def answer(**changes: Any) -> dict[str, Any]:
    """Return an answer of two tokens with nonsense in it."""
    ids: Any = changes.pop("prompt_token_ids", [1, 2, 3])
    tokens = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.5}]
    choice = {"token_ids": [5, 6], "logprobs": {"content": tokens}, **changes}
    return {**completion(**choice), "prompt_token_ids": ids}


# What a model server answers, or somebody posts as the answer to a model call.
ANSWERS: list[dict[str, Any]] = [
    *(
        answer(token_ids=ids)
        for ids in (
            [5, None],
            [5, -1],
            [5, 6.0],
            [5, "6"],
            [5, True],
            [5, 2**64],
            [5, 2**63],
            [5, 2**24],
            "56",
            {"5": 6},
        )
    ),
    *(answer(prompt_token_ids=ids) for ids in ([None], [-1], [0.5], [2**70], "1", 1)),
    answer(prompt_token_ids=None),
    answer(token_ids=[5, 6, 7]),
    answer(logprobs={"content": [{"token": "a", "logprob": -0.5}]}),
    answer(logprobs={"token_logprobs": [-0.5] * 9}),
    answer(message=None),
    answer(message={"role": "assistant", "tool_calls": [{"function": None}]}),
    answer(message={"role": "assistant", "tool_calls": {"a": 1}}),
    answer(finish_reason=["stop"]),
    {**answer(), "choices": None},
    {**answer(), "choices": []},
    {**answer(), "x": json.loads(DEEP)},
    {**answer(), "x": float("nan")},
    {**answer(), "x": float("inf")},
    {**answer(), "x": "\ud800"},
    {**answer(), "x": 2**64},
]


@contextmanager
def opened(
    folder: Path, policy: FakePolicy | ServedPolicy | None
) -> Iterator[tuple[Gateway, httpx.Client]]:
    """Yield a gateway whose rollouts are all running, and a client with its key."""
    names = [*GOOD, *(f"bad-{i}" for i in range(len(ANSWERS)))]
    settings = GatewaySettings(upstream_backoff_s=0.001)
    with (
        Store(folder / "rollouts.db") as store,
        Gateway(store, policy=policy, settings=settings) as gateway,
        httpx.Client(
            base_url=gateway.url,
            headers={"Authorization": f"Bearer {gateway.api_key}"},
            timeout=60,
        ) as client,
    ):
        store.create_rollouts([NewRollout(rollout_id=i, input={}) for i in names])
        store.claim("w", len(names))
        yield gateway, client


def ask(client: httpx.Client, name: str, **body: Any) -> httpx.Response:
    path = f"/proxy/rollout/{name}/attempt/0/mode/train/openai/v1/chat/completions"
    return client.post(path, json={"messages": HI, "user": name, **body})


def do_well(client: httpx.Client, name: str) -> None:
    """Be a rollout: some model calls, and an end with a reward."""
    for _ in range(TURNS):
        assert ask(client, name).status_code == 200
    reward = {"event_type": "reward", "data": {"value": 1.0}}
    end = {"state": "succeeded", "events": [reward]}
    path = f"/api/rollouts/{name}/attempt/0/finish"
    assert client.post(path, json=end).status_code == 200


def beside_good_ones(client: httpx.Client, poison: list[Callable[[], None]]) -> None:
    """Do all of ``poison`` while the good rollouts go on."""
    with ThreadPoolExecutor(16) as pool:
        good = [pool.submit(do_well, client, name) for name in GOOD]
        bad = [pool.submit(one) for one in poison]
        for work in (*good, *bad):
            work.result()


def assert_recorded(folder: Path, store: Store) -> None:
    """Check that the file has every good rollout whole."""
    store.flush()
    with sqlite3.connect(folder / "rollouts.db") as database:
        found = database.execute(
            "SELECT rollout_id, state, "
            "sum(event_type = 'model_request'), sum(event_type = 'reward') "
            "FROM rollouts JOIN events USING (rollout_id) "
            "WHERE rollout_id LIKE 'good%' GROUP BY rollout_id ORDER BY rollout_id"
        ).fetchall()
    assert found == [(name, "succeeded", TURNS, 1) for name in GOOD]


def posts(client: httpx.Client, expected: tuple[int, ...]) -> list[Callable[[], None]]:
    """Return who posts every answer as somebody's model call, and bad rewards."""

    def post(place: int, kind: str, data: Any, codes: tuple[int, ...]) -> None:
        body = json.dumps({"event_type": kind, "data": data})
        path = f"/api/rollouts/bad-{place}/attempt/0/events"
        told = client.post(path, content=body)
        assert told.status_code in codes, (kind, data, told.text)
        assert told.json()["error"]["message"]

    calls = [(i, {"request": {}, "response": bad}) for i, bad in enumerate(ANSWERS)]
    rewards = [{}, {"value": None}, {"value": "1"}, {"value": float("nan")}]
    return [
        *(lambda i=i, d=d: post(i, "model_request", d, expected) for i, d in calls),
        *(lambda d=d: post(0, "reward", d, (422,)) for d in rewards),
    ]


def calls(client: httpx.Client, codes: tuple[int, ...]) -> list[Callable[[], None]]:
    """Return who asks the model in every way that is wrong."""
    path = "/proxy/rollout/bad-0/attempt/%s/mode/train/openai/v1/chat/completions"

    def send(attempt: str, body: bytes, headers: dict[str, bytes]) -> None:
        told = client.post(path % attempt, content=body, headers=headers)
        assert told.status_code in codes, (body[:60], told.text)
        assert told.json()["error"]["message"]

    every = [("0", *call) for call in CALLS]
    every.append(("%ED%A0%80" * 600, b"{}", {}))
    return [lambda one=one: send(*one) for one in every]


def test_poisoned_requests_to_a_policy_in_process_harm_nobody(tmp_path: Path) -> None:
    with opened(tmp_path, FakePolicy()) as (gateway, client):
        poison = [*calls(client, (400,)), *posts(client, (409, 422))]
        beside_good_ones(client, poison)
        assert_recorded(tmp_path, gateway.store)
        assert gateway.store.model_calls("bad-0") == []


def test_poisoned_requests_and_answers_that_are_forwarded_harm_nobody(
    tmp_path: Path,
) -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        name, place = body["user"].split("-")
        said = ANSWERS[int(place)] if name == "bad" else completion()
        return web.Response(text=json.dumps(said), content_type="application/json")

    def ask_badly(client: httpx.Client, place: int) -> None:
        told = ask(client, f"bad-{place}")
        assert told.status_code == 502, (ANSWERS[place], told.text)
        assert "The model server" in told.json()["error"]["message"]

    with StubServer(respond) as server:
        policy = ServedPolicy("m", [server.endpoint])
        with opened(tmp_path, policy) as (gateway, client):
            poison = [
                *calls(client, (400,)),
                *posts(client, (409, 422)),
                *(lambda i=i: ask_badly(client, i) for i in range(len(ANSWERS))),
            ]
            beside_good_ones(client, poison)
            assert_recorded(tmp_path, gateway.store)
            for place in range(len(ANSWERS)):  # recorded as what failed, once
                [event] = gateway.store.events(f"bad-{place}")
                assert event.data["http_status"] == 502


def test_calls_that_a_trainers_agents_post_are_checked(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (gateway, client):
        for one in posts(client, (422,)):
            one()
        good = {"request": {"messages": HI}, "response": answer()}
        body = {"event_type": "model_request", "data": good}
        path = "/api/rollouts/good-0/attempt/0/events"
        assert client.post(path, json=body).status_code == 200
        [call] = gateway.store.model_calls("good-0")
        assert (call.prompt_ids, call.response_ids) == ([1, 2, 3], [5, 6])


@pytest.mark.parametrize("wrong", [{"choices": 5}, [1], {"choices": [[]]}])
def test_a_stream_of_nonsense_is_told_in_the_stream(tmp_path: Path, wrong: Any) -> None:
    async def respond(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: %s\n\n" % json.dumps(wrong).encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    with StubServer(respond) as server:
        policy = ServedPolicy("m", [server.endpoint])
        with opened(tmp_path, policy) as (gateway, client):
            told = ask(client, "bad-0", stream=True)
            assert "unknown shape" in told.text
            [event] = gateway.store.events("bad-0")
            assert event.data["http_status"] == 502


def run(
    folder: Path, policy: ServedPolicy | None, mischief: Callable[[Gateway], None]
) -> list[Trajectory]:
    """Run six rollouts on real workers; there is mischief once one has ended."""
    wanted = requests(6)
    done: list[str] = []

    def first_done(trajectory: Trajectory) -> None:
        done.append(trajectory.rollout_id)
        if len(done) == 1:
            mischief(gateway_of(opened))

    with session(
        folder, policy, framework="native", max_attempts=2, concurrency=1
    ) as opened:
        return opened.run(wanted, first_done)


def gateway_of(session: RolloutSession) -> Gateway:
    return session._gateway


def test_what_others_post_queue_and_delete_drops_no_other_rollout(
    tmp_path: Path,
) -> None:
    def mischief(gateway: Gateway) -> None:
        key = {"Authorization": f"Bearer {gateway.api_key}"}
        with httpx.Client(base_url=gateway.url, headers=key) as client:
            junk = {"event_type": "tool_call", "data": {"name": 5}}
            client.post("/api/rollouts/r0-005/attempt/0/events", json=junk)
            odd = {"event_type": "reward", "data": {"value": 1.0, "source": "me"}}
            client.post("/api/rollouts/r0-004/attempt/0/events", json=odd)
            client.delete("/api/rollouts/r0-003").raise_for_status()
            body = [{"rollout_id": f"junk-{i}", "input": {"x": i}} for i in range(3)]
            client.post("/api/rollouts", json=body).raise_for_status()

    found = run(tmp_path, None, mischief)
    # What had ended by then is hidden from clients, and our own records have it.
    deleted = found.pop(3)
    assert deleted.reward is not None or "deleted" in str(deleted.reason)
    assert [t.reward is None for t in found] == [False] * 4 + [True]
    dropped = found[4]
    assert dropped.status is RolloutStatus.DROPPED
    assert dropped.reason is not None
    assert dropped.reason.kind.startswith(UNREADABLE)
    assert dropped.unused_calls == {"agent": {UNREADABLE: 2}}


def test_a_rollout_whose_server_answers_nonsense_is_dropped_with_the_reason(
    tmp_path: Path,
) -> None:
    poisoned: RolloutRequest = requests(6)[2]

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        task = body["messages"][1]["content"]
        bad = task == poisoned.task.instruction
        return web.json_response(answer(token_ids=[5, -1]) if bad else answer())

    with StubServer(respond) as server:
        found = run(tmp_path, ServedPolicy("m", [server.endpoint]), lambda _: None)
    lost = found.pop(2)
    assert lost.status is RolloutStatus.DROPPED
    assert "-1, which is not a token id" in str(lost.reason)
    assert lost.unused_calls["agent"]["no answer: upstream_error"] >= 1
    assert all(t.reward is not None for t in found)
