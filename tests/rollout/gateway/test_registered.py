"""A policy whose trainer registers servers at the gateway and reads rollouts there."""

from collections.abc import Iterator

import httpx
import pytest

from agentgym.core.files import Beat
from agentgym.core.policy import RegisteredPolicy
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store
from tests.rollout.gateway.test_remote import HI
from tests.rollout.stub_server import StubServer


class Trained(RegisteredPolicy):
    """A policy whose trainer may have ended."""

    model_name = "m"
    failure = ""

    def connect(self, gateway: str, key: str, beat: Beat) -> None: ...


@pytest.fixture
def policy() -> Trained:
    return Trained()


@pytest.fixture
def gateway(policy: Trained) -> Iterator[Gateway]:
    with Store() as store, Gateway(store, policy=policy) as served:
        yield served


@pytest.fixture
def trainer(gateway: Gateway) -> Iterator[httpx.Client]:
    """Yield the trainer's client."""
    header = {"Authorization": f"Bearer {gateway.api_key}"}
    with httpx.Client(base_url=gateway.url, headers=header) as client:
        yield client


def test_its_servers_answer_once_they_are_registered(
    gateway: Gateway, trainer: httpx.Client
) -> None:
    gateway.store.create_rollouts([NewRollout(rollout_id="r", input={})])
    url = gateway.proxy_url("r") + "/chat/completions"
    assert trainer.post(url, json={"messages": HI}).status_code == 503
    with StubServer() as server:
        models = [{"model": "m", "endpoint": server.endpoint}]
        trainer.post("/api/models", json=models).raise_for_status()
        assert trainer.post(url, json={"messages": HI}).status_code == 200


def test_a_request_for_an_existing_rollout_queues_none(
    gateway: Gateway, trainer: httpx.Client
) -> None:
    gateway.store.create_rollouts([NewRollout(rollout_id="ours", input={"a": 1})])
    asked = {"input": {}, "rollout_id": "theirs", "metadata": {"existing": "ours"}}
    [found] = trainer.post("/api/rollouts", json=[asked]).json()
    assert found["rollout_id"] == "ours"
    assert found["input"] == {"a": 1}
    assert trainer.get("/api/rollouts/theirs").status_code == 404


def test_its_trainer_deletes_no_rollouts(
    gateway: Gateway, trainer: httpx.Client
) -> None:
    gateway.store.create_rollouts([NewRollout(rollout_id="r", input={})])
    assert trainer.delete("/api/rollouts/r").status_code == 204
    assert trainer.get("/api/rollouts/r").status_code == 200


def test_the_trainers_end_is_the_gateways_failure(
    gateway: Gateway, policy: Trained
) -> None:
    assert gateway.failure is None
    policy.failure = "the trainer ended"
    assert gateway.failure == "the trainer ended"
