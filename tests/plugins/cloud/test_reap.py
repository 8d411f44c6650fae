"""Machines that nobody uses any more: found by name, and only by that."""

import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.plugins.cloud.lease import KEY_FILE
from agentgym.plugins.cloud.providers.lambda_cloud import LambdaCloud
from agentgym.plugins.cloud.providers.runpod import RunPod
from agentgym.plugins.cloud.reap import find_machines, reap
from agentgym.plugins.cloud.record import MachineRecord
from agentgym.train.run_folder import RunFolder
from tests.plugins.cloud.fakes.fixtures import QUICK
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.home import CLIENT
from tests.plugins.cloud.leases import record


def run_of(output: Path, name: str) -> RunFolder:
    return RunFolder.create(TrainingConfig.create(output=output, name=name))


@pytest.mark.slow
def test_a_machine_whose_client_was_killed_right_after_its_launch(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "r")
    runpod.has_address = False  # it is killed while it waits for the machine
    words = ["-m", CLIENT, runpod.url, "lease", str(run.path)]
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    while not runpod.pods:
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = record(run.path)
    assert (run.path / KEY_FILE).exists()
    assert before.fate in ("asked", "rented")
    theirs = runpod.make("somebody-elses")

    [found], _, problems = find_machines([RunPod()], tmp_path, QUICK)
    assert problems == {}
    assert (found.machine.name, found.is_used) == (before.name, False)
    reap(found, RunPod(), QUICK)

    assert set(runpod.pods) == {theirs["id"]}
    assert not (run.path / KEY_FILE).exists()
    after = record(run.path)
    assert (after.fate, after.id) == ("ended", found.machine.id)
    assert after.spent > 0
    assert "gpu reap" in after.why


def ago(hours: float) -> str:
    return (datetime.now().astimezone() - timedelta(hours=hours)).isoformat()


def settled(output: Path) -> list[str]:
    return find_machines([RunPod()], output, QUICK)[1]


@pytest.mark.slow
def test_a_machine_that_ended_itself_costs_what_it_can_have_cost(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "r")
    left = MachineRecord("agentgym-r-1", "runpod", "rented", id="pod9", hourly=0.43)
    left = left.changed(asked=ago(24), seen=ago(23.5), guarded=True, limit=5.0)
    left.write(run.path)
    (run.path / KEY_FILE).write_text("PRIVATE KEY")
    with run.lock():
        assert settled(tmp_path) == []
    assert "at most $0.5" in settled(tmp_path)[0]
    after = record(run.path)
    assert after.fate == "gone"
    assert 0.43 / 2 < after.spent < 0.43 * 1.4
    assert not (run.path / KEY_FILE).exists()
    assert settled(tmp_path) == []


def test_a_launch_that_never_became_a_machine_costs_nothing_and_leaves_no_key(
    lambda_cloud: FakeLambda, tmp_path: Path
) -> None:
    run = run_of(tmp_path, "r")
    left = MachineRecord("agentgym-r-1", "lambda", "unclear", hourly=1.29)
    left.changed(asked=ago(24)).write(run.path)
    lambda_cloud.keys["k"] = {"id": "k", "name": "agentgym-r-1", "public_key": "x"}
    [remark] = find_machines([LambdaCloud()], tmp_path, QUICK)[1]
    assert "was never created. It cost nothing" in remark
    assert lambda_cloud.keys == {}
