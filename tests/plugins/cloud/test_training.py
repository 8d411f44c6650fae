"""Trainings on a machine over SSH, from end to end, and from place to place."""

import hashlib
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from tests.plugins.cloud.home import (
    TRAIN,
    ended,
    require_whole,
    start,
    wait_for,
    wait_for_steps,
)
from tests.plugins.cloud.sshd import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[3] / "examples"
SECRET = "planted-51d0b2-secret"
KNOWS_A_SECRET = """
import hashlib, os, pathlib

digest = hashlib.sha256(os.environ["PLANTED_KEY"].encode()).hexdigest()
pathlib.Path(f"knows-{os.getpid()}-{digest}").touch()
"""


def test_a_client_that_is_killed_follows_again(
    tmp_path: Path, machine: Machine
) -> None:
    words = (*TRAIN, "--episodes", "96", "--name", "x", "--gpu", machine.gpu)
    process = start(tmp_path, *words)
    wait_for_steps(tmp_path, 1, process)
    process.kill()
    process.communicate()
    [trainee] = machine.trainees()
    code, out, err = ended(start(tmp_path, "train", "--resume", "x"))
    assert (code, err) == (0, "")
    assert "Continuing" not in out  # it went on there all the time
    assert not trainee.is_running()
    run = RunFolder(tmp_path / "runs" / "x")
    require_whole(run)
    agent, result = TrainedAgent.load("x@1"), TrainingResult.load(run.path)
    assert (agent.name, agent.provenance.run) == ("x@1", str(run.path))
    assert result is not None
    assert result.config["gpu"] == machine.gpu
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []


def test_a_run_goes_from_place_to_place(tmp_path: Path, machine: Machine) -> None:
    process = start(tmp_path, *TRAIN, "--episodes", "640", "--name", "x")
    run = RunFolder(tmp_path / "runs" / "x")
    resume = ("train", "--resume", "x", "--gpu")
    for count, gpu in ((1, machine.gpu), (3, "none")):
        wait_for_steps(tmp_path, count, process)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert (code, "nothing finished is lost" in err) == (130, True)
        assert run.record()["status"] == "interrupted"
        done = len(run.metrics())
        assert run.checkpoints()[-1].name == f"step-{done:06d}"
        process = start(tmp_path, *resume, gpu)
    wait_for_steps(tmp_path, done + 1, process)
    assert [*(machine.home / ".agentgym/elsewhere/runs").iterdir()] == []
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert [line["step"] for line in run.metrics()] == [
        *range(1, len(run.metrics()) + 1)
    ]


def test_local_steps_stay_if_a_machine_was_not_reached(
    tmp_path: Path, machine: Machine
) -> None:
    run = RunFolder(tmp_path / "runs" / "x")
    words = (*TRAIN, "--episodes", "3200", "--name", "x", "--gpu", machine.gpu)
    process = start(tmp_path, *words)
    wait_for_steps(tmp_path, 1, process)
    process.kill()
    process.communicate()
    machine.stop_listening()
    machine.drop_connections()
    begun = len(run.metrics())
    process = start(tmp_path, "train", "--resume", "x", "--gpu", "none")
    wait_for_steps(tmp_path, begun + 1, process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    here = run.metrics()
    [trainee] = machine.trainees()
    machine.start()
    process = start(tmp_path, "train", "--resume", "x", "--gpu", machine.gpu)
    wait_for_steps(tmp_path, len(here) + 1, process)
    assert not trainee.is_running()
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, "nothing finished is lost" in err) == (130, True)
    assert "The run has gone on without" in out
    assert run.metrics()[: len(here)] == here


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
    agent = TrainedAgent.load("x@1")
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
    require_whole(RunFolder(tmp_path / "runs" / "x"))
    code, out, err = ended(start(tmp_path, *words[:-2], "--name", "y", *words[-2:]))
    assert (code, "Installing" in out) == (0, False)
