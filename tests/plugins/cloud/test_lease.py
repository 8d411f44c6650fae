"""A lease: no machine is left, and the record says what became of each."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    OutputClosed,
    UnclearLaunchError,
)
from agentgym.plugins.cloud.base import Machine, Offer
from agentgym.plugins.cloud.lease import Lease
from agentgym.plugins.cloud.providers.lambda_cloud import LambdaCloud
from agentgym.plugins.cloud.providers.runpod import RunPod
from agentgym.plugins.cloud.record import FILE, MachineRecord
from tests.plugins.cloud.fakes import client
from tests.plugins.cloud.fakes.fixtures import QUICK
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import DISK_HOURLY, FakeRunPod
from tests.plugins.cloud.home import CLIENT
from tests.plugins.cloud.leases import check_nothing_left, lease, offers, record


@pytest.mark.slow
def test_a_machine_for_the_time_of_a_block(runpod: FakeRunPod, tmp_path: Path) -> None:
    told: list[str] = []
    with lease(tmp_path, report=told.append) as held:
        assert str(held.address) == f"root@127.0.0.1:{runpod.ssh}"
        assert stat.S_IMODE(held.key_file.stat().st_mode) == 0o600
        [pod] = runpod.pods.values()
        public = held.key_file.with_suffix(".pub").read_text().strip()
        assert pod["env"]["PUBLIC_KEY"] == public
        assert pod["name"] == held.record.name
        inside = record(tmp_path)
        assert (inside.fate, inside.id) == ("rented", pod["id"])
        assert inside.hourly == inside.quoted == pytest.approx(0.43 + DISK_HOURLY)
        assert held.ending is not None
        assert held.record.spent >= 0
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate == "ended"
    assert "is ended" in told[-1]
    [name] = [r.body["name"] for r in runpod.asked if r.method == "POST"]
    assert name.startswith(f"agentgym-{tmp_path.name.replace('_', '-')[:20].lower()}")


def test_the_record_is_there_before_the_machine(
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
    assert seen[0].name.startswith("agentgym-")
    assert record(tmp_path).fate == "never"
    assert record(tmp_path).spent == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lost", "page"])
@pytest.mark.parametrize("lag", [0, 3])
def test_a_pod_whose_launch_had_no_answer_is_found_by_its_name(
    runpod: FakeRunPod, tmp_path: Path, how: str, lag: int
) -> None:
    chosen = offers()
    runpod.on_create, runpod.lag = how, lag  # type: ignore[assignment]
    with Lease(RunPod(), chosen, tmp_path, waits=QUICK) as held:
        assert [pod["name"] for pod in runpod.pods.values()] == [held.record.name]
    assert runpod.count("POST", "/pods") == 1
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate == "ended"


ODD = [(201, "[]"), (200, ""), (200, "null"), (201, "3"), (200, '{"data": null}')]
ODD += [(200, '{"data": []}'), (302, ""), (304, ""), (200, '{"data": {}}')]


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD, ids=str)
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
def test_a_pod_that_never_shows_is_not_taken_for_granted(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    chosen = offers()
    runpod.on_create = "none"
    with pytest.raises(UnclearLaunchError) as caught:
        Lease(RunPod(), chosen, tmp_path, waits=QUICK).__enter__()
    assert runpod.count("POST", "/pods") == 1
    assert runpod.count("GET", "/pods") >= QUICK.looks
    assert record(tmp_path).fate == "unclear"
    assert "may or may not exist" in " ".join(caught.value.__notes__)
    assert "agentgym gpu reap" in str(caught.value)


@pytest.mark.slow
def test_the_next_offer_is_asked_for(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.no_capacity = {"NVIDIA L4"}
    with lease(tmp_path, "L4", "RTX 4090") as held:
        assert held.record.gpu == "RTX 4090"
        assert "no instances available" in held.record.tried[0]
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("status", ["ERROR", "EXITED"])
def test_a_machine_that_breaks_before_it_runs_is_ended(
    runpod: FakeRunPod, tmp_path: Path, status: str
) -> None:
    runpod.status = status
    with pytest.raises(ComputeError, match="stopped before it could be used"):
        lease(tmp_path).__enter__()
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [ComputeError("x"), RuntimeError("x"), OutputClosed()]
)
def test_an_error_ends_the_machine_and_goes_on(
    runpod: FakeRunPod, tmp_path: Path, error: Exception
) -> None:
    with pytest.raises(type(error)) as caught, lease(tmp_path):
        raise error
    assert caught.value is error
    check_nothing_left(runpod, tmp_path)
    assert type(error).__name__ in record(tmp_path).why


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["busy", "broken", "undying", "lag"])
def test_an_end_that_fails_is_tried_again(
    runpod: FakeRunPod, tmp_path: Path, fault: str
) -> None:
    with lease(tmp_path):
        setattr(runpod, fault, 3 if fault == "lag" else 12)
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate == "ended"


@pytest.mark.slow
def test_a_machine_that_cannot_be_ended_is_said_aloud(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    waits = client.Waits(look_s=0.02, looks=2, up_s=5, end_s=0.1)
    with (
        pytest.raises(ComputeError, match="COULD NOT BE ENDED.*gpu reap"),
        Lease(RunPod(), offers(), tmp_path, waits=waits),
    ):
        runpod.undying = 10**6
    assert record(tmp_path).fate == "left"
    with pytest.raises(RuntimeError), Lease(RunPod(), offers(), tmp_path, waits=waits):
        raise RuntimeError("its own")


class Clock:
    """Stands for ``time``: a sleep is over at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.slow
def test_a_machine_that_cannot_be_ended_while_it_boots_is_ended_after_that(
    lambda_cloud: FakeLambda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its boot takes longer than an end is waited for."""
    provider, told, clock = LambdaCloud(), list[str](), Clock()
    chosen = [each for each in provider.offers() if each.is_available][:1]
    monkeypatch.setattr("agentgym.plugins.cloud.lease.time", clock)
    lambda_cloud.is_locked_while_booting, lambda_cloud.boot_looks = True, 20
    waits = client.Waits(look_s=50.0, looks=2, up_s=100.0, end_s=300.0, boot_s=1800.0)
    with pytest.raises(ComputeError, match="not started after"):
        Lease(provider, chosen, tmp_path, waits=waits, report=told.append).__enter__()
    assert (lambda_cloud.instances, lambda_cloud.keys) == ({}, {})
    assert record(tmp_path).fate == "ended"
    assert sum("once it has booted" in each for each in told) == 1
    assert clock.now > 100 + 300
    lambda_cloud.boot_looks, begun = 10**6, clock.now
    with pytest.raises(ComputeError) as caught:
        Lease(provider, chosen, tmp_path, waits=waits).__enter__()
    assert "COULD NOT BE ENDED" in " ".join(caught.value.__notes__)
    assert clock.now == pytest.approx(begun + 100 + 1800, abs=200)


@pytest.mark.slow
def test_others_of_the_same_name_go_too(runpod: FakeRunPod, tmp_path: Path) -> None:
    with lease(tmp_path) as held:
        runpod.make(held.record.name)  # a launch that came through twice
        other = runpod.make("agentgym-other-run")
        theirs = runpod.make("production")
    assert set(runpod.pods) == {other["id"], theirs["id"]}


SIGNALS = [
    signal.SIGINT,
    pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, marks=pytest.mark.sweep),
]


def test_no_secret_is_written_down(
    runpod: FakeRunPod, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    with lease(tmp_path, report=told.append) as held:
        private = held.key_file.read_text()
        texts = [(tmp_path / FILE).read_text(), repr(held), repr(held.record), *told]
        texts += [json.dumps(request.body) for request in runpod.asked]
        words = Path(f"/proc/{os.getpid()}/cmdline").read_text()
        texts += [words, str(held.ending), *capfd.readouterr()]
    body = private.splitlines()[1]
    assert not [text for text in texts if runpod.key in text or body in text]


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
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("until", ["Renting", "up at"])
def test_a_signal_ends_the_machine(
    runpod: FakeRunPod,
    tmp_path: Path,
    started: Started,
    number: signal.Signals,
    until: str,
) -> None:
    child = started(until)
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    assert child.returncode != 0
    assert "KeyboardInterrupt" in err
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).fate in ("ended", "never")


@pytest.mark.slow
def test_impatience_does_not_leave_a_machine(
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
