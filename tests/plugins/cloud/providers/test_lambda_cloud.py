"""Lambda, against a fake of its API."""

import pytest

from agentgym.errors import ComputeRefusedError, NoCapacityError
from agentgym.plugins.cloud.base import Address, MachineState, Offer
from agentgym.plugins.cloud.providers.lambda_cloud import LambdaCloud
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda

NAME = "agentgym-run-1a2b"
KEY = "ssh-ed25519 AAAA agentgym"


def offer(region: str = "us-west-1") -> Offer:
    return next(each for each in LambdaCloud().offers() if each.region == region)


def test_offers_are_instances_of_one_gpu_by_region(lambda_cloud: FakeLambda) -> None:
    offers = LambdaCloud().offers()
    assert [(each.kind, each.region) for each in offers] == [
        ("gpu_1x_a10", "us-west-1"),
        ("gpu_1x_a10", "us-east-1"),
        ("gpu_1x_a100_sxm4", ""),
        ("gpu_1x_gh200", "us-east-3"),
    ]
    assert offers[0] == Offer(
        "lambda", "gpu_1x_a10", "A10", 1, 24.0, 200.0, 1.29, "us-west-1"
    )
    assert not offers[2].is_available


@pytest.mark.slow
def test_an_instance_comes_up_and_goes_with_its_key(lambda_cloud: FakeLambda) -> None:
    provider = LambdaCloud()
    machine = provider.launch(offer(), NAME, KEY)
    assert [key["public_key"] for key in lambda_cloud.keys.values()] == [KEY]
    assert provider.machines()[0].state is MachineState.STARTING
    machine = provider.describe(machine)
    assert machine.state is MachineState.RUNNING
    assert machine.address == Address("127.0.0.1", lambda_cloud.ssh, "ubuntu")
    assert machine.hourly == 1.29
    assert "jupyter" not in repr(machine)
    provider.terminate(machine)
    provider.terminate(machine)  # one that is gone is no error
    provider.forget(NAME)
    provider.forget(NAME)
    assert (provider.machines(), lambda_cloud.keys) == ([], {})
    assert provider.describe(machine).state is MachineState.GONE


def test_a_quota_is_no_want_of_capacity(lambda_cloud: FakeLambda) -> None:
    lambda_cloud.quota = True
    with pytest.raises(ComputeRefusedError, match="Quota exceeded") as caught:
        LambdaCloud().launch(offer(), NAME, KEY)
    assert caught.value.code == "global/quota-exceeded"
    lambda_cloud.quota, lambda_cloud.no_capacity = False, {"us-west-1"}
    with pytest.raises(NoCapacityError, match="Not enough capacity"):
        LambdaCloud().launch(offer(), NAME, KEY)
    assert lambda_cloud.keys == {}


def test_a_key_whose_answer_was_lost_is_found(lambda_cloud: FakeLambda) -> None:
    lambda_cloud.lose_key = True
    LambdaCloud().launch(offer(), NAME, KEY)
    assert len(lambda_cloud.keys) == len(lambda_cloud.instances) == 1
