"""SkyPilot, against a fake of its command."""

import pytest
import yaml

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    UnclearLaunchError,
)
from agentgym.plugins.cloud.base import Address, Machine, MachineState, Offer
from agentgym.plugins.cloud.providers.skypilot import SkyPilot
from tests.plugins.cloud.fakes.sky import SPOT, FakeSky

NAME = "agentgym-run-1a2b"
KEY = "ssh-ed25519 AAAA agentgym"


def offer(gpu: str = "L4") -> Offer:
    return next(each for each in SkyPilot().offers() if each.gpu == gpu)


def cluster(name: str = NAME) -> Machine:
    return Machine("sky", name, name, MachineState.STARTING)


def test_offers_are_of_one_gpu_of_clouds_that_can_be_used(sky: FakeSky) -> None:
    found = {each.kind: each for each in SkyPilot().offers()}
    assert set(found) == {"aws/g6.xlarge", "gcp/g2-standard-4", "aws/p4de"}
    assert found["aws/g6.xlarge"] == Offer(
        "sky", "aws/g6.xlarge", "L4", 1, 24.1, 16.0, 0.8048, "us-east-1"
    )
    assert found["gcp/g2-standard-4"].gpu_memory_gb == 24.1  # as others say of an L4
    assert found["aws/p4de"].gpu == "A100 80GB"


def test_a_spot_machine_is_an_offer_of_its_own_up_to_the_price_on_demand(
    sky: FakeSky,
) -> None:
    sky.change(gpus=SPOT)
    offers = SkyPilot().offers()
    assert len([offer for offer in offers if not offer.is_spot]) == len(SPOT["L4"])
    spot = {offer.kind: offer for offer in offers if offer.is_spot}
    assert set(spot) == {"aws/g6.xlarge", "gcp/g2-standard-4"}
    found = spot["aws/g6.xlarge"]
    assert (found.hourly, found.most_hourly) == (0.2, 0.8)
    assert found.price == "$0.20 an hour as a spot machine"
    SkyPilot().launch(found, NAME, KEY)
    [sent] = sky["launches"]
    assert yaml.safe_load(sent["task"])["resources"]["use_spot"] is True


@pytest.mark.slow
def test_a_cluster_comes_up_and_goes(sky: FakeSky) -> None:
    provider = SkyPilot()
    machine = provider.launch(offer(), NAME, KEY)
    assert (machine.name, machine.state) == (NAME, MachineState.STARTING)
    [sent] = sky["launches"]
    task = yaml.safe_load(sent["task"])
    assert task["resources"] == {
        "cloud": "aws",
        "region": "us-east-1",
        "instance_type": "g6.xlarge",
        "use_spot": False,
    }
    assert "heartbeat -mmin -30" in task["run"]
    up = provider.describe(machine)
    assert (up.state, up.address) == (MachineState.RUNNING, Address(NAME))
    sky.change(clusters={**sky["clusters"], "mine": "UP"})
    assert [each.name for each in provider.machines()] == [NAME]
    provider.terminate(machine)
    assert sky["clusters"] == {"mine": "UP"}
    assert provider.describe(machine).state is MachineState.GONE
    provider.terminate(machine)  # one that is gone is no error
    assert provider.ending(machine) is None


@pytest.mark.parametrize(
    ("status", "kind", "state"),
    [
        ("INIT", "launching", MachineState.STARTING),
        ("INIT", "unhealthy", MachineState.STOPPED),
        ("UP", None, MachineState.RUNNING),
        ("STOPPED", None, MachineState.STOPPED),
        ("AUTOSTOPPING", None, MachineState.STOPPED),
        ("NEWER", None, MachineState.STOPPED),
    ],
)
def test_states(
    sky: FakeSky, status: str, kind: str | None, state: MachineState
) -> None:
    sky.change(clusters={NAME: status}, init_kind=kind)
    assert SkyPilot().describe(cluster()).state is state


@pytest.mark.slow
def test_what_a_launch_that_breaks_has_left_is_ended(sky: FakeSky) -> None:
    wanted = offer()
    sky.change(on_launch="breaks")
    with pytest.raises(ComputeRefusedError, match="sky launch` failed: Failed to set"):
        SkyPilot().launch(wanted, NAME, KEY)
    assert sky["clusters"] == {}
    sky.change(down_fails=True)
    with pytest.raises(UnclearLaunchError, match="And then: `sky down` failed"):
        SkyPilot().launch(wanted, NAME, KEY)


def test_an_answer_of_another_shape_is_never_an_empty_list(sky: FakeSky) -> None:
    sky.change(garbage=True)
    with pytest.raises(ComputeRefusedError, match="printed no JSON"):
        SkyPilot().machines()
    sky.change(garbage=False, gpus={"L4": [{"cloud": "AWS"}]})
    with pytest.raises(ComputeRefusedError, match="Unexpected answer"):
        SkyPilot().offers()


@pytest.mark.parametrize("name", ["mine", "agentgym-*", "agentgym-a b", "--all"])
def test_other_clusters_are_never_touched(sky: FakeSky, name: str) -> None:
    with pytest.raises(ComputeError, match="not the name of a cluster of AgentGym's"):
        SkyPilot().terminate(cluster(name))
    assert sky["downs"] == 0
