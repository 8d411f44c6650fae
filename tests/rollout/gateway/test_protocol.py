"""Agent Lightning's own client, trainer side and controller against our gateway."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from agentlightning.client import AgentLightningAsyncClient, AgentLightningSyncClient
from agentlightning.controller.local_reconciler import LocalReconciler
from agentlightning.schemas import Event, Model, Rollout, RolloutState
from agentlightning.verl.agl_rollout_manager import AglRolloutManager
from omegaconf import OmegaConf

from agentgym.core.policy import Policy
from agentgym.core.trajectory import Reason
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import ModelServer, NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.fake_policy import FakePolicy, say

HI: list[Any] = [{"role": "user", "content": "hi"}]


@contextmanager
def serving(policy: Policy | None = None) -> Iterator[Gateway]:
    settings = GatewaySettings(model_name="m")
    with (
        Store(max_attempts=2) as store,
        Gateway(store, policy=policy, settings=settings) as gateway,
    ):
        yield gateway


def client(gateway: Gateway) -> AgentLightningSyncClient:
    return AgentLightningSyncClient(
        base_url=gateway.url, key=gateway.api_key, max_retries=0
    )


def create(api: httpx.Client, *ids: str, **fields: Any) -> None:
    body = [{"rollout_id": i, "input": {"data_id": f"d-{i}"}, **fields} for i in ids]
    api.post("/api/rollouts", json=body).raise_for_status()


def patch(api: httpx.Client, rollout_id: str, **status: Any) -> httpx.Response:
    return api.patch(f"/api/rollouts/{rollout_id}", json={"status": status})


def test_rollouts_are_created_once_listed_read_changed_and_deleted() -> None:
    with serving() as gateway, client(gateway) as api:
        for _ in range(2):
            answer = api.post(
                "/api/rollouts",
                json=[{"rollout_id": "a", "input": 1, "metadata": {"batch_idx": 4}}],
            )
            assert answer.status_code == 201
            [rollout] = [Rollout.model_validate(item) for item in answer.json()]
            assert rollout.metadata.batch_idx == 4
        [made] = api.post("/api/rollouts", json=[{"input": None}]).json()
        assert len(made["rollout_id"]) == 32
        listed = api.get("/api/rollouts", params={"state_in": "queuing"}).json()
        assert [item["rollout_id"] for item in listed] == ["a", made["rollout_id"]]
        detail = api.get("/api/rollouts/a").json()
        assert detail["attempts"] == []
        assert Rollout.model_validate(detail["rollout"]).status.state == "queuing"
        assert patch(api, "a", state="succeeded").status_code == 409
        running = patch(
            api, "a", state="running", last_attempt_id="0", k8s_job_name="j"
        )
        assert running.json()["status"]["version"] == 2
        assert (
            patch(api, "a", state="succeeded").json()["status"]["k8s_job_name"] == "j"
        )
        query = [("state_in", "running"), ("state_in", "succeeded"), ("limit", "1")]
        listed = api.get("/api/rollouts", params=query).json()
        assert [item["rollout_id"] for item in listed] == ["a"]
        for _ in range(2):
            assert api.delete("/api/rollouts/a").status_code == 204
        assert api.get("/api/rollouts/a").status_code == 404
        assert api.get("/api/rollouts/a").json()["detail"] == "Rollout not found: a"


def test_ended_rollouts_are_paged_in_the_order_they_ended() -> None:
    with serving() as gateway, client(gateway) as api:
        create(api, *"abc", is_train=False)
        for rollout_id in "cab":
            patch(api, rollout_id, state="failed")
        page = api.get("/api/rollouts/terminal", params={"limit": 2}).json()
        assert page["items"][0] == {
            "rollout_id": "c",
            "state": "failed",
            "data_id": "d-c",
            "is_train": False,
        }
        assert (page["next_after"], page["total_terminal"]) == (2, 3)
        page = api.get("/api/rollouts/terminal", params={"after": 2}).json()
        assert [item["rollout_id"] for item in page["items"]] == ["b"]
        assert page["next_after"] == 3


def test_events_are_recorded_and_filtered() -> None:
    with serving(FakePolicy()) as gateway, client(gateway) as api:
        create(api, "a")
        path = "/api/rollouts/a/attempt/0/events"
        posted = api.post(path, json={"event_type": "note", "data": {"x": 1}})
        assert Event.model_validate(posted.json()).data == {"x": 1}
        api.post(gateway.proxy_url("a") + "/chat/completions", json={"messages": HI})
        api.post(path, json={"event_type": "reward", "data": {"value": 1, "y": 2}})
        events = [
            Event.model_validate(e) for e in api.get("/api/rollouts/a/events").json()
        ]
        assert [e.event_type for e in events] == ["note", "model_request", "reward"]
        request = events[1].data
        assert request["response"]["choices"][0]["token_ids"] == say().response_ids
        assert request["finish_reason"] == "stop"
        assert request["usage"]["prompt_tokens"] == 3
        [reward] = api.get(
            "/api/rollouts/a/events",
            params={"event_type": "reward", "format": "triplet"},
        ).json()
        assert reward["data"] == {"value": 1}
        [triplet] = api.get(
            "/api/rollouts/a/events",
            params={"event_type": "model_request", "format": "triplet"},
        ).json()
        assert triplet["data"]["prompt_token_ids"] == say().prompt_ids
        assert triplet["data"]["response_log_probs"] == say().logprobs
        assert api.get("/api/rollouts/a").json()["attempts"] == ["0"]
        assert api.get("/api/rollouts/x/events").status_code == 404
        assert api.post("/api/rollouts/x/attempt/0/events", json={}).status_code == 422


def test_models_are_registered_for_remote_upstreams_only() -> None:
    model = Model(model="m", endpoint="http://one/v1").model_dump()
    with serving() as gateway, client(gateway) as api:
        assert api.post("/api/models", json=[model]).json() == [model]
        newer = {**model, "version": 2}
        assert api.post("/api/models", json=[newer]).status_code == 201
        assert gateway.store.models("m") == [ModelServer(**newer)]
        huge = {**model, "version": 10**30}
        assert api.post("/api/models", json=[huge]).status_code == 422
        gateway.store.flush()
        assert api.delete("/api/models").json() == {"status": "ok"}
        assert gateway.store.models("m") == []
    with serving(FakePolicy()) as gateway, client(gateway) as api:
        assert api.post("/api/models", json=[model]).status_code == 409


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/rollouts", b"{"),
        ("POST", "/api/rollouts", b'[{"is_train": true}]'),
        ("GET", "/api/rollouts", b""),
        ("GET", "/api/rollouts?state_in=sleeping", b""),
        ("GET", "/api/rollouts?state_in=queuing&limit=x", b""),
        ("GET", "/api/rollouts/a?wait_s=x", b""),
        ("PATCH", "/api/rollouts/a", b'{"status": {"colour": "red"}}'),
        ("POST", "/api/rollouts/claim", b'{"n": 0}'),
        ("POST", "/api/models", b"{}"),
        ("POST", "/proxy/pause", b"[]"),
    ],
)
def test_what_does_not_validate_is_a_422(method: str, path: str, body: bytes) -> None:
    with serving() as gateway, client(gateway) as api:
        create(api, "a")
        answer = api.request(method, path, content=body)
        assert answer.status_code == 422
        assert answer.json()["detail"] == answer.json()["error"]["message"]


# What we add


def test_claims_wait_and_mark_as_running() -> None:
    with serving() as gateway, client(gateway) as api:
        claim = {"n": 2, "worker": "w"}
        assert api.post("/api/rollouts/claim", json=claim).json() == []
        later = threading.Timer(0.1, create, (api, "a", "b", "c"))
        later.start()
        found = api.post("/api/rollouts/claim", json={**claim, "wait_s": 30}).json()
        assert [r["rollout_id"] for r in found] == ["a", "b"]
        assert found[0]["status"]["last_attempt_id"] == "0"
        assert gateway.store.retire("w") == ["a", "b"]
        later.join()


def test_get_and_list_wait_for_the_end() -> None:
    with serving() as gateway, client(gateway) as api:
        create(api, "a")
        assert api.get("/api/rollouts/a?wait_s=0.01").json()["rollout"]["status"][
            "state"
        ] == ("queuing")
        threading.Timer(0.1, gateway.store.fail, ("a", Reason(kind="why"))).start()
        ended = api.get("/api/rollouts/a?wait_s=30").json()["rollout"]
        assert ended["status"]["error_message"] == "why"
        create(api, "b")
        threading.Timer(0.1, gateway.store.claim, ("w",)).start()
        listed = api.get("/api/rollouts?state_in=running&wait_s=30").json()
        assert [item["rollout_id"] for item in listed] == ["b"]


def test_finish_reports_everything_at_once_and_retries() -> None:
    with serving(FakePolicy()) as gateway, client(gateway) as api:
        create(api, "a")
        api.post("/api/rollouts/claim", json={})
        failed = {"state": "failed", "reason": {"kind": "crash"}}
        after = api.post("/api/rollouts/a/attempt/0/finish", json=failed).json()
        assert (after["status"]["state"], after["status"]["last_attempt_id"]) == (
            "queuing",
            "1",
        )
        api.post("/api/rollouts/claim", json={})
        url = gateway.proxy_url("a", "1")
        api.post(url + "/chat/completions", json={"messages": HI})
        [call] = api.get("/api/rollouts/a/attempt/1/calls").json()
        assert call["content"] == say().content
        assert call["response_tokens"] == len(say().response_ids)
        assert not call.keys() & {"prompt_ids", "response_ids", "logprobs"}
        done = {
            "state": "succeeded",
            "events": [{"event_type": "reward", "data": {"value": 0.5}}],
        }
        assert api.post("/api/rollouts/a/attempt/1/finish", json=done).is_success
        assert (
            api.post("/api/rollouts/a/attempt/1/finish", json=done).status_code == 409
        )
        types = [e["event_type"] for e in api.get("/api/rollouts/a/events").json()]
        assert types == ["model_request", "reward"]
        first = api.get("/api/rollouts/a/events?attempt_id=0").json()
        assert [e["data"]["reason"]["kind"] for e in first] == ["crash"]


# Agent Lightning's own programs


def work(gateway: Gateway, count: int) -> None:
    """Run ``count`` rollouts the way a foreign worker would."""
    with client(gateway) as api:
        for _ in range(count):
            [rollout] = api.post("/api/rollouts/claim", json={"wait_s": 30}).json()
            rollout_id = rollout["rollout_id"]
            for question in ("one", "one", "two"):
                api.post(
                    gateway.proxy_url(rollout_id) + "/chat/completions",
                    json={"messages": [{"role": "user", "content": question}]},
                )
            reward = {"event_type": "reward", "data": {"value": 0.5}}
            api.post(f"/api/rollouts/{rollout_id}/attempt/0/events", json=reward)
            patch(api, rollout_id, state="succeeded")


def test_agent_lightnings_rollout_manager_works_unchanged() -> None:
    policy = FakePolicy(
        lambda r: say(
            prompt_ids=[5, len(r.messages), ord(r.messages[-1]["content"][0])]
        )
    )
    with serving(policy) as gateway:
        manager = AglRolloutManager(
            agl_base_url=gateway.url,
            agl_key=gateway.api_key,
            model="m",
            step=1,
            train_rollout_n=2,
            poll_interval_seconds=0.02,
        )
        worker = threading.Thread(target=work, args=(gateway, 4))
        worker.start()
        completed = manager.enqueue_and_wait_until_completed(
            {"question": ["a", "b"]}, is_train=True
        )
        worker.join()
        manager.client.close()
        assert len(completed) == 4
        for rollout in completed:
            assert rollout.final_reward == 0.5
            assert rollout.rollout_state is RolloutState.SUCCEEDED
            assert rollout.triplets is not None
            assert [t.prompt["token_ids"] for t in rollout.triplets] == [
                [5, 1, ord("o")],
                [5, 1, ord("t")],
            ]
            assert rollout.triplets[0].response["token_ids"] == say().response_ids
            assert rollout.triplets[0].response["log_probs"] == say().logprobs
        assert gateway.store.list_rollouts(list(RolloutState)) == []


@pytest.mark.slow
async def test_agent_lightnings_local_controller_works_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    with serving(FakePolicy()) as gateway:
        config = OmegaConf.create(
            {
                "runner_type": "local",
                "agl_server": {"url": gateway.url, "key": gateway.api_key},
                "local_runner": {"maximum_size": 4, "poll_interval": 0.1},
            }
        )

        def task(name: str, agent: str) -> NewRollout:
            local = {
                "agent_class": f"tests.rollout.tiny_agent:{agent}",
                "env_map": {"QUESTION": "input.question"},
            }
            return NewRollout.model_validate(
                {
                    "rollout_id": name,
                    "input": {"question": f"What is {name}?"},
                    "config": {"local": local},
                }
            )

        gateway.store.create_rollouts(
            [task("good", "TinyAgent"), task("bad", "BrokenAgent")]
        )
        async with AgentLightningAsyncClient(
            base_url=gateway.url, key=gateway.api_key
        ) as api:
            reconciler = LocalReconciler(api=api, config=config)
            running = asyncio.create_task(reconciler.run())
            ended = await asyncio.to_thread(
                gateway.store.wait_terminal, ["good", "bad"], 60
            )
            reconciler.stop()
            await running
        assert ended == {"good", "bad"}
        assert gateway.store.get("good").status.state == RolloutState.SUCCEEDED
        assert gateway.store.events("good")[-1].data["value"] == 0.75
        [step] = gateway.store.model_calls("good")
        assert step.messages[0]["content"] == "What is good?"
        bad = gateway.store.get("bad").status
        assert bad.state == RolloutState.FAILED
        assert bad.error_message == "subprocess exited with code 1"


def test_the_trainers_pause_drain_and_resume_work() -> None:
    with serving(FakePolicy()) as gateway, client(gateway) as api:
        api.post_with_retry("/proxy/pause", json={"reason": "weights"}, timeout=300.0)
        deadline = time.monotonic() + 10
        while api.get("/proxy/state").json()["inflight"]:
            assert time.monotonic() < deadline
        assert not api.post_with_retry("/proxy/resume").json()["paused"]
