"""Machines that nobody uses any more: found by name, and only by that."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.compute.providers.runpod import RunPod
from agentgym.compute.reap import find_machines, reap
from agentgym.compute.record import MachineRecord
from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.train.run_folder import RunFolder
from tests.compute.fakes.fixtures import QUICK
from tests.compute.fakes.lambda_cloud import FakeLambda
from tests.compute.fakes.runpod import FakeRunPod


def run_of(output: Path, name: str) -> RunFolder:
    return RunFolder.create(TrainingConfig.create(output=output, name=name))


def test_a_machine_whose_client_was_killed_right_after_its_launch(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "r")
    runpod.has_address = False  # it is killed while it waits for the machine
    words = ["-m", "tests.compute.fakes.client", runpod.url, "lease", str(run.path)]
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    while not runpod.pods:
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = MachineRecord.read(run.path)
    assert before is not None
    assert before.fate in ("asked", "rented")
    theirs = runpod.make("somebody-elses")

    [found], problems = find_machines([RunPod()], tmp_path)
    assert problems == []
    assert (found.machine.name, found.is_used) == (before.name, False)
    reap(found, RunPod(), QUICK)

    assert set(runpod.pods) == {theirs["id"]}
    after = MachineRecord.read(run.path)
    assert after is not None
    assert (after.fate, after.id) == ("ended", found.machine.id)
    assert after.spent > 0
    assert "gpu reap" in after.why


def test_a_run_that_goes_on_is_known(runpod: FakeRunPod, tmp_path: Path) -> None:
    run = run_of(tmp_path, "r")
    MachineRecord("agentgym-r-1", "runpod", "rented").write(run.path)
    runpod.make("agentgym-r-1")
    runpod.make("agentgym-elsewhere-2")
    with run.lock():
        found, _ = find_machines([RunPod()], tmp_path)
    assert [(each.machine.name, each.is_used) for each in found] == [
        ("agentgym-r-1", True),
        ("agentgym-elsewhere-2", False),
    ]
    assert found[1].run is None
    assert reap(found[1], RunPod(), QUICK) is None


def test_a_provider_that_fails_does_not_hide_another(
    runpod: FakeRunPod, lambda_cloud: FakeLambda, tmp_path: Path
) -> None:
    from agentgym.compute.providers.lambda_cloud import LambdaCloud

    runpod.broken = 10**6
    lambda_cloud.make("agentgym-x")
    found, problems = find_machines([RunPod(), LambdaCloud()], tmp_path)
    assert [each.machine.provider for each in found] == ["lambda"]
    assert "runpod gave no answer" in problems[0]


def test_a_record_that_cannot_be_read_hides_no_machine(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "r")
    (run.path / "machine.json").write_text('{"name": 3')
    runpod.make("agentgym-r-1")
    [found], _ = find_machines([RunPod()], tmp_path)
    assert found.run is None
    with pytest.raises(ComputeError, match=r"machine.json cannot be read"):
        MachineRecord.read(run.path)
