"""A lease: no machine is left, its cost is limited, and its files are fetched first."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.errors import ComputeError, ComputeRefusedError, UnclearLaunchError
from agentgym.plugins.cloud.base import Machine, Offer
from agentgym.plugins.cloud.lease import Lease, Waits
from agentgym.plugins.cloud.providers.lambda_cloud import LambdaCloud
from agentgym.plugins.cloud.providers.runpod import RunPod
from agentgym.plugins.cloud.record import FILE, MachineRecord
from tests.plugins.cloud.fakes.fixtures import QUICK
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import DISK_HOURLY, FakeRunPod
from tests.plugins.cloud.home import CLIENT
from tests.plugins.cloud.leases import check_nothing_left, lease, offers, record


@pytest.mark.slow
def test_a_machine_exists_during_the_block(
    runpod: FakeRunPod, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    with lease(tmp_path, report=told.append) as held:
        assert str(held.address) == f"root@127.0.0.1:{runpod.ssh}"
        assert stat.S_IMODE(held.key_file.stat().st_mode) == 0o600
        [pod] = runpod.pods.values()
        public = held.key_file.with_suffix(".pub").read_text().strip()
        assert (pod["env"]["PUBLIC_KEY"], pod["name"]) == (public, held.record.name)
        inside = record(tmp_path)
        assert (inside.fate, inside.id) == ("rented", pod["id"])
        assert inside.hourly == inside.quoted == pytest.approx(0.43 + DISK_HOURLY)
        secret = held.key_file.read_text().splitlines()[1]
        texts = [(tmp_path / FILE).read_text(), repr(held), *told]
        texts += [json.dumps(request.body) for request in runpod.asked]
        texts += capfd.readouterr()
        assert not [text for text in texts if runpod.key in text or secret in text]
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate == "ended"
    assert "is ended" in told[-1]
    assert held.record.name.startswith("agentgym-test-a-machine")


def test_the_record_is_written_before_the_launch(
    runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[MachineRecord] = []

    def launch(self: RunPod, offer: Offer, name: str, key: str) -> Machine:
        seen.append(record(tmp_path))
        raise ComputeRefusedError("no", 422)

    monkeypatch.setattr(RunPod, "launch", launch)
    with pytest.raises(ComputeRefusedError), lease(tmp_path):
        pass
    assert (seen[0].fate, seen[0].kind) == ("asked", "NVIDIA L4")
    assert (record(tmp_path).fate, record(tmp_path).spent) == ("never", 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lost", "page"])
def test_a_pod_whose_launch_had_no_answer_is_found_by_its_name(
    runpod: FakeRunPod, tmp_path: Path, how: str
) -> None:
    chosen = offers()
    runpod.on_create, runpod.lag = how, 3  # type: ignore[assignment]
    with Lease(RunPod(), chosen, tmp_path, waits=QUICK) as held:
        assert [pod["name"] for pod in runpod.pods.values()] == [held.record.name]
    assert runpod.count("POST", "/pods") == 1
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate == "ended"


@pytest.mark.slow
@pytest.mark.parametrize("odd", [(201, "[]"), (302, ""), (200, '{"data": {}}')])
@pytest.mark.parametrize("name", ["runpod", "lambda"])
def test_an_answer_that_cannot_be_read_orphans_no_machine(
    runpod: FakeRunPod,
    lambda_cloud: FakeLambda,
    tmp_path: Path,
    name: str,
    odd: tuple[int, str],
) -> None:
    provider = RunPod() if name == "runpod" else LambdaCloud()
    fake = runpod if name == "runpod" else lambda_cloud
    there = runpod.pods if name == "runpod" else lambda_cloud.instances
    chosen = [each for each in provider.offers() if each.is_available][:1]
    fake.odd = odd
    with Lease(provider, chosen, tmp_path, waits=QUICK) as held:
        assert [each["name"] for each in there.values()] == [held.record.name]
    assert there == {}
    assert record(tmp_path).fate == "ended"


@pytest.mark.slow
def test_a_pod_that_is_never_listed_may_exist(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    chosen = offers()
    runpod.on_create = "none"
    with pytest.raises(UnclearLaunchError, match="agentgym gpu reap") as caught:
        Lease(RunPod(), chosen, tmp_path, waits=QUICK).__enter__()
    assert runpod.count("POST", "/pods") == 1
    assert runpod.count("GET", "/pods") >= QUICK.looks
    assert record(tmp_path).fate == "unclear"
    assert "may or may not exist" in " ".join(caught.value.__notes__)


@pytest.mark.slow
def test_the_next_offer_is_asked_for(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.no_capacity = {"NVIDIA L4"}
    with lease(tmp_path, "L4", "RTX 4090") as held:
        assert held.record.gpu == "RTX 4090"
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
def test_a_machine_that_breaks_before_it_runs_is_ended(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    runpod.status = "ERROR"
    with pytest.raises(ComputeError, match="stopped before it could be used"):
        lease(tmp_path).__enter__()
    check_nothing_left(runpod, tmp_path)
    assert "ComputeError" in record(tmp_path).why


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy", "broken", "undying"])
def test_a_machine_is_asked_to_end_until_it_is_gone(
    runpod: FakeRunPod, tmp_path: Path, fault: str
) -> None:
    with lease(tmp_path) as held:
        runpod.make(held.record.name)  # a launch that came through twice
        other = runpod.make("agentgym-other-run")
        setattr(runpod, fault, 12)
    assert set(runpod.pods) == {other["id"]}
    assert record(tmp_path).fate == "ended"


@pytest.mark.slow
def test_a_machine_that_cannot_be_ended_is_reported(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    waits = Waits(look_s=0.02, looks=2, up_s=5, end_s=0.1)
    with (
        pytest.raises(ComputeError, match="COULD NOT BE ENDED.*gpu reap"),
        Lease(RunPod(), offers(), tmp_path, waits=waits),
    ):
        runpod.undying = 10**6
    assert record(tmp_path).fate == "left"
    with pytest.raises(RuntimeError), Lease(RunPod(), offers(), tmp_path, waits=waits):
        raise RuntimeError("its own")


@pytest.mark.slow
def test_a_machine_that_cannot_be_ended_while_it_boots_is_ended_later(
    lambda_cloud: FakeLambda, tmp_path: Path
) -> None:
    provider, told = LambdaCloud(), list[str]()
    chosen = [each for each in provider.offers() if each.is_available][:1]
    lambda_cloud.is_locked_while_booting, lambda_cloud.boot_looks = True, 20
    waits = Waits(look_s=0.02, looks=2, up_s=0.1, end_s=60.0)
    with pytest.raises(ComputeError, match="not started after"):
        Lease(provider, chosen, tmp_path, waits=waits, report=told.append).__enter__()
    assert (lambda_cloud.instances, lambda_cloud.keys) == ({}, {})
    assert record(tmp_path).fate == "ended"
    assert any("Trying to end it" in each for each in told)


@pytest.mark.parametrize("more", [{}, {"max_hourly": 0.45}], ids=str)
def test_a_price_that_is_higher_after_the_launch_ends_it(
    runpod: FakeRunPod, tmp_path: Path, more: dict[str, float]
) -> None:
    runpod.real_price = 0.55
    cap = r"--max-hourly is \$0.45" if more else r"\$0.45 was agreed on"
    with pytest.raises(ComputeError, match=rf"\$0.57 an hour, and {cap}") as caught:
        lease(tmp_path, **more).__enter__()
    check_nothing_left(runpod, tmp_path)
    assert "is ended" in " ".join(caught.value.__notes__)
    paid = pytest.approx(0.55 + DISK_HOURLY)
    assert (record(tmp_path).fate, record(tmp_path).hourly) == ("ended", paid)


@pytest.mark.slow
@pytest.mark.parametrize("with_disk", [True, False])
def test_the_higher_price_counts_if_it_may_leave_the_disk_out(
    runpod: FakeRunPod, tmp_path: Path, with_disk: bool
) -> None:
    runpod.with_disk, runpod.real_price = with_disk, 0.55
    with lease(tmp_path, max_hourly=0.60) as held:
        most = 0.55 + DISK_HOURLY * (1 + with_disk)
        assert held.record.hourly == pytest.approx(most)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1e-9, 3e-4])
def test_a_limit_interrupts_the_block(
    runpod: FakeRunPod, tmp_path: Path, limit: float
) -> None:
    reached = pytest.raises(ComputeError, match=r"limit of \$0.00 is reached")
    with reached, lease(tmp_path, limit=limit) as held:
        assert held.seconds_left() is not None
        threading.Event().wait(60)
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).limit == limit


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_files_are_fetched_before_a_signal_ends_the_machine(
    runpod: FakeRunPod,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    there: list[int] = []

    def rescue() -> None:
        os.kill(os.getpid(), signal.SIGHUP)  # a second one
        time.sleep(0.3)
        there.append(len(runpod.pods))

    held = lease(tmp_path, rescue=rescue)
    old = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt), held:
            os.kill(os.getpid(), number)
            threading.Event().wait(60)
    finally:
        signal.signal(signal.SIGTERM, old)
    assert (there, held.lost) == ([1], "")
    assert "being fetched first; 2 more" in capfd.readouterr().err
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["waits", "limit", "signals"])
def test_fetching_has_a_time_limit(
    runpod: FakeRunPod, tmp_path: Path, how: str
) -> None:
    hangs = threading.Event()

    def rescue() -> None:
        for _ in range(3 * (how == "signals")):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        hangs.wait(60)

    waits = replace(QUICK, fetch_s=0.2 if how == "waits" else 60.0)
    limit = 3e-4 if how == "limit" else None
    held = Lease(RunPod(), offers(), tmp_path, waits=waits, rescue=rescue, limit=limit)
    with pytest.raises(RuntimeError) as caught, held:
        raise RuntimeError("its own")
    hangs.set()
    assert held.lost
    assert "are lost" in " ".join(caught.value.__notes__)
    check_nothing_left(runpod, tmp_path)


Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def started(runpod: FakeRunPod, tmp_path: Path) -> Iterator[Started]:
    """Return a function that starts a client and waits for a line of its output."""
    children: list[subprocess.Popen[str]] = []

    def start(until: str) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            [sys.executable, "-m", CLIENT, runpod.url, "lease", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout is not None
        for line in child.stdout:
            if until in line:
                return child
        raise AssertionError(child.communicate()[1])

    yield start
    for child in children:
        with suppress(ProcessLookupError):
            child.kill()
        child.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("until", ["Renting", "up at"])
def test_a_signal_ends_the_machine(
    runpod: FakeRunPod, tmp_path: Path, started: Started, until: str
) -> None:
    child = started(until)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert (child.returncode != 0, "KeyboardInterrupt" in err) == (True, True)
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate in ("ended", "never")


@pytest.mark.slow
def test_a_second_signal_does_not_leave_a_machine(
    runpod: FakeRunPod, tmp_path: Path, started: Started
) -> None:
    child = started("up at")
    runpod.undying = 40
    child.send_signal(signal.SIGINT)
    assert child.stdout is not None
    assert "Ending" in child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert "being ended first" in err
    check_nothing_left(runpod, tmp_path)
