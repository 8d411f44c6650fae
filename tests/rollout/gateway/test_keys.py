"""Keys: an agent's asks the model; rewards, ends and deletions are the operator's."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.http import agent_key
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.fake_policy import FakePolicy

HI = {"messages": [{"role": "user", "content": "hi"}]}
REWARD = {"event_type": "reward", "data": {"value": 1}}


@contextmanager
def serving(api_key: str | None = "the operator's") -> Iterator[Gateway]:
    settings = GatewaySettings(api_key=api_key)
    with (
        Store() as store,
        Gateway(store, policy=FakePolicy(), settings=settings) as gateway,
    ):
        store.create_rollouts([NewRollout(rollout_id="r", input={})])
        store.claim("w")
        yield gateway


def client(gateway: Gateway, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=gateway.url, headers=headers)


def test_an_agents_key_asks_the_model() -> None:
    with serving() as gateway, client(gateway, gateway.agent_key) as agent:
        answer = agent.post(gateway.proxy_url("r") + "/chat/completions", json=HI)
        assert answer.status_code == 200
        assert agent.get(gateway.proxy_url("r") + "/models").status_code == 200
        header = {"Authorization": "", "X-API-Key": gateway.agent_key}
        again = agent.post(
            gateway.proxy_url("r") + "/chat/completions", json=HI, headers=header
        )
        assert again.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/rollouts/r/attempt/0/events", REWARD),
        ("POST", "/api/rollouts/r/attempt/0/finish", {"state": "succeeded"}),
        ("PATCH", "/api/rollouts/r", {"status": {"state": "succeeded"}}),
        ("DELETE", "/api/rollouts/r", None),
        ("POST", "/api/rollouts", [{"input": {}}]),
        ("POST", "/api/rollouts/claim", {}),
        ("GET", "/api/rollouts/r", None),
        ("GET", "/api/rollouts/r/events", None),
        ("GET", "/api/rollouts?state_in=running", None),
        ("POST", "/api/models", []),
        ("DELETE", "/api/models", None),
        ("POST", "/proxy/pause", {}),
        ("POST", "/proxy/resume", {}),
        ("GET", "/proxy/rollout/../../api/rollouts/r", None),
        ("DELETE", "//api/rollouts/r", None),
    ],
)
def test_an_agents_key_does_nothing_else(method: str, path: str, body: object) -> None:
    with serving() as gateway, client(gateway, gateway.agent_key) as agent:
        before = gateway.store.get("r")
        answer = agent.request(method, path, json=body)
        assert answer.status_code in (403, 404)
        if answer.status_code == 403:
            assert answer.json()["error"]["code"] == "agent_key"
        assert gateway.store.get("r") == before
        assert gateway.store.events("r") == []
        assert not gateway.admission.state()["paused"]


def test_the_operators_key_does_everything() -> None:
    with serving() as gateway, client(gateway, gateway.api_key) as api:
        posted = api.post("/api/rollouts/r/attempt/0/events", json=REWARD)
        assert posted.status_code == 200
        chat = api.post(gateway.proxy_url("r") + "/chat/completions", json=HI)
        assert chat.status_code == 200
        assert api.delete("/api/rollouts/r").status_code == 204


@pytest.mark.parametrize("key", ["x", "agent-", agent_key("another")])
def test_other_keys_do_nothing(key: str) -> None:
    with serving() as gateway, client(gateway, key) as anybody:
        path = gateway.proxy_url("r") + "/chat/completions"
        assert anybody.post(path, json=HI).status_code == 401
        assert anybody.get("/api/rollouts/r").status_code == 401


def test_an_agents_key_follows_from_the_operators_and_not_the_other_way() -> None:
    assert agent_key("a") == agent_key("a") != agent_key("b")
    assert "operator" not in agent_key("the operator's")
    assert agent_key("") == ""


def test_a_gateway_without_a_key_asks_nobody_for_one() -> None:
    with serving("") as gateway, httpx.Client(base_url=gateway.url) as anybody:
        assert gateway.agent_key == ""
        assert anybody.delete("/api/rollouts/r").status_code == 204
