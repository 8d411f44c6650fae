"""Single connections that fail: before training, and to a machine that costs money."""

import signal
from pathlib import Path

import pytest

from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.home import (
    awake,
    be_pods,
    ended,
    make_sleepy,
    start,
    start_client,
    wait_for,
)
from tests.plugins.cloud.sshd import Machine

TRAIN = ("train", "./sleepy", "--framework", "native", "--name", "x", "--gpu")


def fail_at(machine: Machine, *calls: int) -> Path:
    """Let some calls of ``ssh`` fail, by number; return where they are counted."""
    count, real = machine.folder / "calls", machine.bin / "ssh"
    last = real.read_text().splitlines()[-1]
    count.write_text("0\n")
    failing = " ".join(str(call) for call in calls)
    machine.shim(
        "ssh",
        f"read n < {count}; n=$((n+1)); echo $n > {count}\n"
        f"for each in {failing}; do if [ $n = $each ]; then "
        "echo 'Connection reset by peer' >&2; exit 255; fi; done\n"
        f"{last}\n",
    )
    return count


@pytest.mark.slow
def test_a_failure_while_a_machine_is_prepared(
    tmp_path: Path, machine: Machine
) -> None:
    make_sleepy(tmp_path)
    fail_at(machine, 2, 4)  # of its interpreter, and of what answers questions
    process = start(tmp_path, *TRAIN, machine.gpu)
    wait_for(lambda: awake(machine), process)
    process.send_signal(signal.SIGINT)
    code, out, _ = ended(process)
    assert code == 130
    assert out.count("Trying again") == out.count("Connected to") == 2


@pytest.mark.slow
def test_a_machine_of_ones_own_that_is_not_there_is_told_at_once(
    tmp_path: Path, machine: Machine
) -> None:
    make_sleepy(tmp_path)
    count = fail_at(machine, 1)
    code, _, err = ended(start(tmp_path, *TRAIN, machine.gpu))
    assert (code, "cannot be reached: Connection reset by peer" in err) == (1, True)
    assert "Try it by hand: ssh -p" in err
    assert count.read_text() == "1\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failures_do_not_end_a_rented_machine(
    tmp_path: Path, machine: Machine, runpod: FakeRunPod
) -> None:
    be_pods(machine, runpod)
    fail_at(machine, 1, 3)
    words = ("train", "coding", "--framework", "native", "--episodes", "6400", "--name")
    more = ("x", "--gpu", "runpod", "--yes", "--max-cost", "5")
    process = start_client(runpod, tmp_path, *words, *more)
    wait_for((tmp_path / "runs/x/checkpoints/step-000000").exists, process)
    [pod] = runpod.pods
    [trainee] = machine.trainees()
    process.kill()
    process.communicate()
    count = fail_at(machine, 1, 3)
    process = start_client(runpod, tmp_path, "train", "--resume", "x", "--yes")
    wait_for(lambda: int(count.read_text() or 0) >= 4, process)
    assert list(runpod.pods) == [pod]
    assert machine.trainees() == [trainee]
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, "by hand" in out + err) == (130, False)
    assert runpod.pods == {}
