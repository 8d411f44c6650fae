"""Trainings on a machine over SSH, from end to end, with what happens to them."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from tests.cli.conftest import (
    Command,
    agentgym,  # noqa: F401 - a fixture
)
from tests.compute.home import ended, start, wait_for
from tests.compute.sshd import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRAIN = ["train", "coding", "--framework", "native", "--yes", "--deterministic"]
EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "planted-51d0b2-secret"
KNOWS_A_SECRET = """
import hashlib, os, pathlib

digest = hashlib.sha256(os.environ["PLANTED_KEY"].encode()).hexdigest()
pathlib.Path(f"knows-{os.getpid()}-{digest}").touch()
"""
WEIGHTS = "agent/model/model.safetensors"


def steps(folder: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Wait until so many steps are at home."""
    run = RunFolder(folder / "runs" / "x")
    wait_for(lambda: len(run.checkpoints()) and len(run.metrics()) >= count, process)


def steps_there(machine: Machine) -> int:
    return sum(
        len(path.read_text().splitlines())
        for path in machine.home.rglob("runs/x/metrics.jsonl")
    )


def require_whole(run: RunFolder, count: int) -> None:
    """Check that no step is missing and none was done twice."""
    assert [line["step"] for line in run.metrics()] == list(range(1, count + 1))
    assert run.record()["status"] == "done"
    assert run.checkpoints()[-1].name == f"step-{count:06d}"
    assert not (run.path / ".incoming").exists()
    assert run.record()["elsewhere"] is None


def test_broken_connections_and_a_kill_change_nothing(
    tmp_path: Path,
    machine: Machine,
    agentgym: Command,  # noqa: F811
    own_home: Path,
) -> None:
    words = (*TRAIN, "--episodes", "128", "--name", "x", "--gpu")
    with_local_paths = tmp_path / "with_local_paths"
    with_local_paths.mkdir()
    code, _, err = ended(start(with_local_paths, *words, "none"))
    assert (code, err) == (0, "")
    shutil.rmtree(own_home / "agents")
    process = start(tmp_path, *words, machine.gpu)
    for count in (1, 3):
        steps(tmp_path, count, process)
        assert machine.drop_connections()
    steps(tmp_path, 4, process)
    [trainee] = machine.trainees()
    trainee.kill()
    code, out, err = ended(process)
    assert code == 1
    assert out.count("Connected to") == 2
    assert "was killed (exit code -9" in err
    assert "Continue with: agentgym train --resume runs/x" in err
    run = RunFolder(tmp_path / "runs" / "x")
    assert run.record()["status"] == "failed"

    code, out, err = ended(start(tmp_path, "train", "--resume", "x"))
    assert (code, err) == (0, "")
    assert "Continuing after step" in out
    require_whole(run, 8)
    agent, local = TrainedAgent.load("x"), with_local_paths / "runs" / "x"
    assert agent.name == "x@1"
    assert agent.provenance.run == str(run.path)
    assert (run.path / WEIGHTS).read_bytes() == (local / WEIGHTS).read_bytes()
    result = TrainingResult.load(run.path)
    assert result is not None
    assert result.artifacts.agent.name == "agent"
    assert result.config["gpu"] == machine.gpu
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []
    [row] = json.loads(agentgym("runs", "list", "--json").out)
    assert (row["name"], row["status"]) == ("x", "done")
    shown = json.loads(agentgym("runs", "show", "x", "--json").out)
    assert len(shown["steps"]) == 8
    both = [json.loads(agentgym("doctor", "x", "--json").out)["ledger"]]
    both.append(json.loads(agentgym("doctor", str(local), "--json").out)["ledger"])
    assert both[0] == both[1]


def test_a_laptop_that_sleeps(tmp_path: Path, machine: Machine) -> None:
    words = (*TRAIN, "--episodes", "128", "--name", "x", "--gpu", machine.gpu)
    process = start(tmp_path, *words)
    steps(tmp_path, 1, process)
    process.send_signal(signal.SIGSTOP)
    before = steps_there(machine)
    machine.drop_connections()
    while steps_there(machine) < before + 3 and machine.trainees():
        time.sleep(0.1)
    process.send_signal(signal.SIGCONT)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert "Connected to" in out
    require_whole(RunFolder(tmp_path / "runs" / "x"), 8)


def test_a_client_that_is_gone_follows_again(tmp_path: Path, machine: Machine) -> None:
    words = (*TRAIN, "--episodes", "96", "--name", "x", "--gpu", machine.gpu)
    process = start(tmp_path, *words)
    steps(tmp_path, 1, process)
    process.kill()
    process.communicate()
    [trainee] = machine.trainees()
    code, out, err = ended(start(tmp_path, "train", "--resume", "x"))
    assert (code, err) == (0, "")
    assert "Continuing" not in out  # it went on there all the time
    assert not trainee.is_running()
    require_whole(RunFolder(tmp_path / "runs" / "x"), 6)


def test_a_run_goes_from_place_to_place(tmp_path: Path, machine: Machine) -> None:
    process = start(tmp_path, *TRAIN, "--episodes", "640", "--name", "x")
    run = RunFolder(tmp_path / "runs" / "x")
    resume = ("train", "--resume", "x", "--gpu")
    for count, gpu in ((1, machine.gpu), (3, "none")):
        steps(tmp_path, count, process)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert (code, "nothing finished is lost" in err) == (130, True)
        assert run.record()["status"] == "interrupted"
        done = len(run.metrics())
        assert run.checkpoints()[-1].name == f"step-{done:06d}"
        process = start(tmp_path, *resume, gpu)
    steps(tmp_path, done + 1, process)
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert [line["step"] for line in run.metrics()] == [
        *range(1, len(run.metrics()) + 1)
    ]


@pytest.mark.parametrize("trains_on", [True, False], ids=["trains on", "is off"])
def test_what_home_did_without_the_machine_stays(
    tmp_path: Path, machine: Machine, *, trains_on: bool
) -> None:
    run = RunFolder(tmp_path / "runs" / "x")
    words = (*TRAIN, "--episodes", "3200", "--name", "x", "--gpu", machine.gpu)
    process = start(tmp_path, *words)
    steps(tmp_path, 1, process)
    assert machine.drop_connections()
    machine.stop_listening()
    if not trains_on:
        for each in (*machine.watchdogs(), *machine.trainees()):
            each.kill()
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    begun = len(run.metrics())
    process = start(tmp_path, "train", "--resume", "x", "--gpu", "none")
    steps(tmp_path, begun + 3, process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    here, newest = run.metrics(), run.checkpoints()[-1].name
    assert len(machine.trainees()) == trains_on

    machine.start()
    process = start(tmp_path, "train", "--resume", "x", "--gpu", machine.gpu)
    steps(tmp_path, len(here) + 1, process)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, "nothing finished is lost" in err) == (130, True)
    assert f"Continuing after step {int(newest[-6:])}" in out
    assert "The run has gone on without" in out
    assert run.metrics()[: len(here)] == here
    assert run.checkpoints()[-1].name == f"step-{len(run.metrics()):06d}"
    assert machine.trainees() == []


def test_an_agent_as_it_is_with_its_tasks(tmp_path: Path, machine: Machine) -> None:
    for name in ("clinic.py", "tasks.jsonl"):
        shutil.copy(EXAMPLES / "bring_your_agent" / "langgraph" / name, tmp_path)
    with (tmp_path / "clinic.py").open("a") as code:
        code.write(KNOWS_A_SECRET)
    (tmp_path / "diary.txt").write_text("private")
    words = ["train", "--agent", "clinic:graph", "--tasks", "tasks.jsonl", "--yes"]
    words += ["--warm-start", "--episodes", "32", "--name", "x", "--gpu", machine.gpu]
    process = start(tmp_path, *words, PLANTED_KEY=SECRET)
    inputs = wait_for(lambda: [*machine.home.rglob("inputs/clinic.py")], process)
    sent = {path.name for path in inputs[0].parent.iterdir()}
    sent -= {name for name in sent if name.startswith("knows-")}
    assert {"clinic.py", "tasks"} <= sent <= {"clinic.py", "tasks", "__pycache__"}
    wait_for(lambda: len([*inputs[0].parent.glob("knows-*")]) > 1, process)
    for path in inputs[0].parent.glob("knows-*"):  # training, and its workers
        pid, _, digest = path.name.removeprefix("knows-").partition("-")
        assert digest == hashlib.sha256(SECRET.encode()).hexdigest()
        assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    [trainee] = machine.trainees()
    for each in trainee.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            assert SECRET not in str(each.environ())
    code, _, err = ended(process)
    assert (code, err) == (0, "")
    agent = TrainedAgent.load("x")
    assert agent.spec.agent == "clinic:graph"
    assert agent.scenario.startswith(f"{tmp_path}/tasks.jsonl?")
    assert agent.baseline.tasks == agent.metrics.tasks == 4


@pytest.mark.network
def test_what_is_needed_is_installed(tmp_path: Path, machine: Machine) -> None:
    machine.stop_listening()
    del machine.environment["AGENTGYM_ELSEWHERE_PYTHON"]
    cache = subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True)
    if cache.returncode == 0:  # what was downloaded already is not again
        machine.environment["UV_CACHE_DIR"] = cache.stdout.strip()
    own = ("PATH", "SSL_CERT_FILE", "PIP_CERT", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
    machine.environment |= {
        name: os.environ[name] for name in own if name in os.environ
    }
    machine.start()
    words = (*TRAIN, "--episodes", "32", "--name", "x", "--gpu", machine.gpu)
    code, out, err = ended(start(tmp_path, *words))
    assert (code, err) == (0, "")
    assert "Installing agentgym with local on" in out
    require_whole(RunFolder(tmp_path / "runs" / "x"), 2)
    code, out, err = ended(start(tmp_path, *words[:-2], "--name", "y", *words[-2:]))
    assert (code, "Installing" in out) == (0, False)
