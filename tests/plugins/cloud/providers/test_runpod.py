"""RunPod, against a fake of its REST API."""

import logging

import pytest

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    NoCapacityError,
    UnreachableError,
)
from agentgym.plugins.cloud.base import Address, Machine, MachineState, Offer
from agentgym.plugins.cloud.providers.runpod import RunPod
from tests.plugins.cloud.fakes.runpod import FakeRunPod

NAME = "agentgym-run-1a2b"
KEY = "ssh-ed25519 AAAA agentgym"


def offer(gpu: str = "L4") -> Offer:
    return next(each for each in RunPod().offers() if each.gpu == gpu)


def test_offers_are_nvidias_gpus_of_its_own_data_centres(runpod: FakeRunPod) -> None:
    offers = {each.gpu: each for each in RunPod().offers()}
    assert set(offers) == {"RTX A4000", "L4", "RTX 4090", "A100 PCIe", "H100 SXM"}
    disk = 100 * 0.10 * 12 / 8760  # 100 GB at $0.10 a month
    assert offers["L4"].hourly == pytest.approx(0.43 + disk)
    assert offers["L4"].disk_hourly == pytest.approx(0.0137, abs=1e-4)
    assert (offers["L4"].kind, offers["L4"].gpu_memory_gb) == ("NVIDIA L4", 24.0)
    assert not offers["H100 SXM"].is_available


@pytest.mark.slow
def test_a_pod_comes_up_and_goes(runpod: FakeRunPod) -> None:
    provider = RunPod()
    machine = provider.launch(offer(), NAME, KEY)
    assert (machine.state, machine.address) == (MachineState.STARTING, None)
    assert machine.hourly == 0.43
    sent = runpod.asked[-1].body
    assert sent["env"] == {"PUBLIC_KEY": KEY}
    assert sent["gpu"]["id"] == "NVIDIA L4"
    assert sent["ports"] == ["22/tcp"]
    provider.describe(machine)
    machine = provider.describe(machine)
    assert machine.state is MachineState.RUNNING
    assert machine.address == Address("127.0.0.1", runpod.ssh, "root")
    assert provider.machines() == [machine]
    provider.terminate(machine)
    provider.terminate(machine)  # one that is gone is no error
    assert provider.describe(machine).state is MachineState.GONE
    assert provider.machines() == []


@pytest.mark.slow
def test_a_launch_refused_for_its_rate_is_asked_for_again(runpod: FakeRunPod) -> None:
    chosen = offer()
    runpod.busy = 2
    RunPod().launch(chosen, NAME, KEY)
    assert len(runpod.pods) == 1
    runpod.busy = 99
    with pytest.raises(ComputeRefusedError, match="takes no more requests"):
        RunPod().launch(chosen, NAME, KEY)
    assert len(runpod.pods) == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy", "broken"])
def test_what_may_be_repeated_is(runpod: FakeRunPod, fault: str) -> None:
    setattr(runpod, fault, 3)
    assert RunPod().machines() == []
    assert runpod.count("GET", "/pods") == 4
    setattr(runpod, fault, 99)
    with pytest.raises(UnreachableError, match="asked 5 times"):
        RunPod().machines()


@pytest.mark.parametrize(
    "answer", [{}, {"pods": None}, {"pods": [{"name": "agentgym-x"}]}], ids=str
)
def test_an_answer_of_another_shape_is_not_an_empty_list(
    runpod: FakeRunPod, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    monkeypatch.setattr(
        "agentgym.plugins.cloud.providers.api.ApiProvider.ask", lambda *_: answer
    )
    with pytest.raises(ComputeRefusedError):
        RunPod().machines()


@pytest.mark.parametrize("key", ["", "  ", None])
def test_no_key_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    if key is not None:
        monkeypatch.setenv("RUNPOD_API_KEY", key)
    with pytest.raises(ComputeError, match=r"RUNPOD_API_KEY.*\.env.*runpod\.io"):
        RunPod().check()


def test_a_wrong_key_is_named_by_its_variable_and_never_shown(
    runpod: FakeRunPod,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "rpa_secret0123456789"
    monkeypatch.setenv("RUNPOD_API_KEY", secret)
    with pytest.raises(ComputeRefusedError, match="RUNPOD_API_KEY") as caught:
        RunPod().machines()  # the fake repeats the key in its answer
    assert "[key]" in str(caught.value)
    machine = Machine("runpod", "pod1", NAME, MachineState.RUNNING)
    shown = [
        str(caught.value),
        repr(caught.value),
        repr(RunPod()),
        repr(RunPod().ending(machine)),
        caplog.text,
    ]
    assert not [text for text in shown if secret in text]


def test_an_id_cannot_lead_elsewhere(runpod: FakeRunPod) -> None:
    machine = Machine("runpod", "../catalog/gpus", NAME, MachineState.RUNNING)
    with pytest.raises(ComputeError, match="not the id"):
        RunPod().terminate(machine)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("may_create", "RUNPOD_API_KEY.*may not create pods"), ("no_money", "billing")],
)
def test_a_refused_launch_says_how_to_help(
    runpod: FakeRunPod, fault: str, words: str
) -> None:
    setattr(runpod, fault, fault == "no_money")
    with pytest.raises(ComputeError, match=words) as caught:
        RunPod().launch(offer(), NAME, KEY)
    assert not isinstance(caught.value, NoCapacityError)
