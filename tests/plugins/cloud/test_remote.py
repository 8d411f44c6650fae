"""A run elsewhere that trains nothing: who may follow it, what stays, how it ends."""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from agentgym.train.run_folder import RunFolder
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECRET = "planted-7f3a1c-secret"
TRAIN = ("train", "./sleepy", "--framework", "native", "--name", "x", "--gpu")


def train(folder: Path, machine: Machine, **more: str) -> "subprocess.Popen[str]":
    make_sleepy(folder)
    process = start(folder, *TRAIN, machine.gpu, **more)
    wait_for(lambda: awake(machine), process)
    return process


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


def wait_for_heartbeat(machine: Machine, process: "subprocess.Popen[str]") -> None:
    [beat] = machine.home.rglob("heartbeat")
    begun = time.time()
    wait_for(lambda: beat.stat().st_mtime > begun + 3, process)


def test_ctrl_c_ends_it_there_and_leaves_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    process = train(tmp_path, machine)
    assert len(machine.trainees()) == len(machine.watchdogs()) == 1
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, "there is nothing to resume" in err) == (130, True)
    assert machine.trainees() == machine.watchdogs() == []
    assert not (tmp_path / "runs" / "x").exists()
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []


def test_ctrl_c_while_it_is_sent_leaves_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    (make_sleepy(tmp_path) / "large.bin").write_bytes(os.urandom(100 << 20))
    machine.shim("tar", "sleep 60\n", there=True)
    machine.stop_listening()
    machine.start()
    process = start(tmp_path, *TRAIN, machine.gpu)
    wait_for(lambda: [*machine.home.rglob(".new")], process)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, "there is nothing to resume" in err) == (130, True)
    assert not (tmp_path / "runs" / "x").exists()
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []


def test_broken_connections_are_made_again(tmp_path: Path, machine: Machine) -> None:
    make_sleepy(tmp_path)
    fail_at(machine, 2, 4)
    process = start(tmp_path, *TRAIN, machine.gpu)
    wait_for(lambda: awake(machine), process)
    [trainee] = machine.trainees()
    for _ in range(2):
        assert wait_for(machine.drop_connections, process)
        wait_for_heartbeat(machine, process)
    assert machine.trainees() == [trainee]
    process.send_signal(signal.SIGTERM)
    code, out, _ = ended(process)
    assert (code, machine.trainees()) == (143, [])
    assert out.count("Trying again") == out.count("Connected to") >= 2


def test_an_unreachable_machine_of_ones_own_is_an_error_at_once(
    tmp_path: Path, machine: Machine
) -> None:
    make_sleepy(tmp_path)
    count = fail_at(machine, 1)
    code, _, err = ended(start(tmp_path, *TRAIN, machine.gpu))
    assert (code, "cannot be reached: Connection reset by peer" in err) == (1, True)
    assert "Try it by hand: ssh -p" in err
    assert count.read_text() == "1\n"


def test_broken_connections_do_not_end_a_rented_machine(
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
    wait_for(lambda: int(count.read_text() or 0) >= 6, process)
    assert list(runpod.pods) == [pod]
    assert machine.trainees() == [trainee]
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, "by hand" in out + err) == (130, False)
    assert runpod.pods == {}


def test_secrets_are_in_no_process_list_and_on_no_disk(
    tmp_path: Path, machine: Machine
) -> None:
    process = train(tmp_path, machine, PLANTED_KEY=SECRET)
    [found] = awake(machine)
    assert found.read_text() == hashlib.sha256(SECRET.encode()).hexdigest()
    for each in psutil.process_iter():
        try:
            assert SECRET not in " ".join(each.cmdline())
        except psutil.Error:
            continue
    for each in (*machine.trainees(), *machine.watchdogs()):
        assert SECRET not in str(each.environ())
    files = [*machine.home.rglob("*"), *tmp_path.rglob("runs/**/*")]
    data = [path.read_bytes() for path in files if path.is_file()]
    assert len(data) > 5
    assert not any(SECRET.encode() in each for each in data)
    assert not any(path.name == ".env" for path in files)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


def test_a_second_client_is_refused_while_the_first_one_lives(
    tmp_path: Path, machine: Machine
) -> None:
    process = train(tmp_path, machine)
    run = tmp_path / "runs" / "x"
    same = start(tmp_path, "train", "--resume", "x")
    code, _, err = ended(same)
    assert (code, f"Process {process.pid} is training in" in err) == (1, True)
    other = tmp_path / "copy"
    shutil.copytree(tmp_path / "runs", other / "runs")
    code, _, err = ended(start(other, "train", "--resume", "x"))
    assert (code, "another client follows this run" in err) == (1, True)
    [trainee] = machine.trainees()
    process.kill()
    process.communicate()
    again = start(tmp_path, "train", "--resume", "x")
    wait_for_heartbeat(machine, again)
    again.send_signal(signal.SIGINT)
    assert ended(again)[0] == 130
    assert not trainee.is_running()
    assert not run.exists() or RunFolder(run).record()["status"] == "interrupted"


def test_a_killed_training_is_an_error(tmp_path: Path, machine: Machine) -> None:
    process = train(tmp_path, machine)
    [trainee] = machine.trainees()
    trainee.kill()
    code, _, err = ended(process)
    assert code == 1
    assert "was killed (exit code -9, as it is when memory runs out)" in err


def test_an_error_of_training_has_local_paths(tmp_path: Path, machine: Machine) -> None:
    pack = make_sleepy(tmp_path)
    (pack / "scenario.py").write_text("import no_such_module_there\n")
    code, _, err = ended(start(tmp_path, *TRAIN, machine.gpu))
    assert code == 1
    assert "no_such_module_there" in err
    assert f"{tmp_path}/sleepy/scenario.py" in err
    assert not (tmp_path / "runs" / "x").exists()
