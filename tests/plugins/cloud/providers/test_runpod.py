"""RunPod, against a fake of its REST API."""

import json
import logging

import pytest

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    NoCapacityError,
    UnclearLaunchError,
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


def test_only_pods_with_the_prefix_are_listed(runpod: FakeRunPod) -> None:
    runpod.make("somebody-elses")
    runpod.make("my-agentgym-notes")
    mine = runpod.make(NAME)
    assert [machine.id for machine in RunPod().machines()] == [mine["id"]]


@pytest.mark.parametrize("status", ["EXITED", "ERROR", "HIBERNATED"])
def test_a_pod_that_is_of_no_use_is_still_there(
    runpod: FakeRunPod, status: str
) -> None:
    runpod.is_strict = status != "HIBERNATED"  # of a later version
    runpod.make(NAME, status=status)
    assert RunPod().machines()[0].state is MachineState.STOPPED


@pytest.mark.parametrize("name", ["a\nb", 'quote"}', "{name: 1}"])
def test_no_name_breaks_a_request(runpod: FakeRunPod, name: str) -> None:
    RunPod().launch(offer(), f"agentgym-{name}", KEY)
    assert runpod.asked[-1].body["name"] == f"agentgym-{name}"


def test_no_capacity(runpod: FakeRunPod) -> None:
    runpod.no_capacity = {"NVIDIA L4"}
    with pytest.raises(NoCapacityError, match="no instances available"):
        RunPod().launch(offer(), NAME, KEY)


def test_a_key_without_the_right_is_no_want_of_capacity(runpod: FakeRunPod) -> None:
    runpod.may_create = False
    with pytest.raises(
        ComputeRefusedError, match="RUNPOD_API_KEY.*may not create pods"
    ):
        RunPod().launch(offer(), NAME, KEY)


def test_a_request_that_its_description_forbids_is_refused(runpod: FakeRunPod) -> None:
    api = RunPod()
    for wrong in ({"name": "x"}, {"name": "x", "image": "i", "gpuId": "L4"}):
        with pytest.raises(ComputeRefusedError) as caught:
            api.ask_once("/pods", wrong, lambda found: found)
        assert caught.value.status == 422
    with pytest.raises(ComputeRefusedError, match="cursor"):
        api.ask("GET", "/pods", cursor="2")
    assert runpod.pods == {}


def test_no_credit_says_where_to_add_some(runpod: FakeRunPod) -> None:
    runpod.no_money = True
    with pytest.raises(ComputeError, match="billing") as caught:
        RunPod().launch(offer(), NAME, KEY)
    assert not isinstance(caught.value, NoCapacityError)


@pytest.mark.parametrize("how", ["lost", "page", "none"])
def test_a_launch_without_an_answer_is_asked_for_once(
    runpod: FakeRunPod, how: str
) -> None:
    chosen = offer()
    runpod.on_create = how  # type: ignore[assignment]
    with pytest.raises(UnclearLaunchError):
        RunPod().launch(chosen, NAME, KEY)
    assert runpod.count("POST", "/pods") == 1


def test_a_launch_that_was_never_sent_is_not_unclear(
    monkeypatch: pytest.MonkeyPatch, runpod: FakeRunPod
) -> None:
    chosen = offer()
    monkeypatch.setattr(RunPod, "url", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match="cannot be reached"):
        RunPod().launch(chosen, NAME, KEY)


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


def test_a_server_that_asks_for_a_wait_gets_it(
    runpod: FakeRunPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("agentgym.plugins.cloud.providers.api.time.sleep", slept.append)
    runpod.busy, runpod.retry_after = 2, "12"
    RunPod().machines()
    runpod.busy, runpod.retry_after = 1, "86400"
    RunPod().machines()
    assert slept == [12.0, 12.0, 60.0]


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


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_is_none_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", key)
    with pytest.raises(ComputeError) as caught:
        RunPod().machines()
    assert key not in str(caught.value)


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


def test_a_machine_can_end_itself(runpod: FakeRunPod) -> None:
    machine = RunPod().launch(offer(), NAME, KEY)
    ending = RunPod().ending(machine)
    assert (ending.method, ending.key) == ("DELETE", runpod.key)
    assert ending.url == f"{runpod.url}/pods/{machine.id}"
    assert runpod.key not in json.dumps(ending.url + ending.body)


def test_an_id_cannot_lead_elsewhere(runpod: FakeRunPod) -> None:
    machine = Machine("runpod", "../catalog/gpus", NAME, MachineState.RUNNING)
    with pytest.raises(ComputeError, match="not the id"):
        RunPod().terminate(machine)
