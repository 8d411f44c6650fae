"""A run elsewhere that trains nothing: who may follow it, what stays, how it ends."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from agentgym.train.run_folder import RunFolder
from tests.plugins.cloud.home import awake, ended, make_sleepy, start, wait_for
from tests.plugins.cloud.sshd import Machine

SECRET = "planted-7f3a1c-secret"


def train(folder: Path, machine: Machine, **more: str) -> "subprocess.Popen[str]":
    make_sleepy(folder)
    words = ("train", "./sleepy", "--framework", "native", "--name", "x")
    process = start(folder, *words, "--gpu", machine.gpu, **more)
    wait_for(lambda: awake(machine), process)
    return process


@pytest.mark.slow
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


@pytest.mark.slow
def test_ctrl_c_while_it_is_sent_leaves_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    (make_sleepy(tmp_path) / "large.bin").write_bytes(os.urandom(100 << 20))
    words = ("train", "./sleepy", "--framework", "native", "--name", "x")
    process = start(tmp_path, *words, "--gpu", machine.gpu)
    wait_for(lambda: [*machine.home.rglob(".new")], process)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, "there is nothing to resume" in err) == (130, True)
    assert not (tmp_path / "runs" / "x").exists()
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []


@pytest.mark.slow
def test_what_a_link_leads_to_is_sent(tmp_path: Path, machine: Machine) -> None:
    pack = make_sleepy(tmp_path)
    (pack / "words.py").rename(tmp_path / "words_of_all.py")
    (pack / "words.py").symlink_to(tmp_path / "words_of_all.py")
    (pack / "itself").symlink_to(".")
    words = ("train", "./sleepy", "--framework", "native", "--name", "x")
    process = start(tmp_path, *words, "--gpu", machine.gpu)
    wait_for(lambda: awake(machine), process)  # it has imported them
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


@pytest.mark.slow
def test_a_broken_connection_is_made_again(tmp_path: Path, machine: Machine) -> None:
    process = train(tmp_path, machine)
    [trainee] = machine.trainees()
    for _ in range(2):
        assert wait_for(machine.drop_connections, process)
        first = _client(machine)
        wait_for(lambda old=first: _client(machine) != old, process)
    assert machine.trainees() == [trainee]
    process.send_signal(signal.SIGTERM)
    code, out, _ = ended(process)
    assert code == 143
    assert "Trying again; the training goes on." in out
    assert out.count("Connected to") == 2
    assert machine.trainees() == []


@pytest.mark.slow
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


@pytest.mark.slow
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
    first = _client(machine)
    process.kill()
    process.communicate()
    again = start(tmp_path, "train", "--resume", "x")
    wait_for(lambda: _client(machine) != first, again)
    again.send_signal(signal.SIGINT)
    assert ended(again)[0] == 130
    assert not trainee.is_running()
    assert not run.exists() or RunFolder(run).record()["status"] == "interrupted"


@pytest.mark.slow
def test_a_killed_training_is_told(tmp_path: Path, machine: Machine) -> None:
    process = train(tmp_path, machine)
    [trainee] = machine.trainees()
    trainee.kill()
    code, _, err = ended(process)
    assert code == 1
    assert "was killed (exit code -9, as it is when memory runs out)" in err


@pytest.mark.slow
def test_what_training_says_there_is_said_here(
    tmp_path: Path, machine: Machine
) -> None:
    pack = make_sleepy(tmp_path)
    (pack / "scenario.py").write_text("import no_such_module_there\n")
    words = ("train", "./sleepy", "--framework", "native", "--gpu", machine.gpu)
    code, _, err = ended(start(tmp_path, *words, "--name", "x"))
    assert code == 1
    assert "no_such_module_there" in err
    assert f"{tmp_path}/sleepy/scenario.py" in err
    assert not (tmp_path / "runs" / "x").exists()


def _client(machine: Machine) -> dict[str, object]:
    [path] = machine.home.rglob("client.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found
