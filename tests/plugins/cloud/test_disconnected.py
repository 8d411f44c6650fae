"""Trainings over SSH whose connection breaks, or whose client sleeps or is gone."""

import json
import shutil
from pathlib import Path

import pytest

from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from tests.cli.conftest import (
    Command,
    agentgym,  # noqa: F401 - a fixture
)
from tests.plugins.cloud.home import TRAIN, ended, require_whole, start, wait_for_steps
from tests.plugins.cloud.sshd import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WEIGHTS = "agent/model/model.safetensors"


@pytest.mark.sweep
def test_broken_connections_and_a_kill_change_nothing(
    tmp_path: Path,
    machine: Machine,
    agentgym: Command,  # noqa: F811
    own_home: Path,
) -> None:
    words = (*TRAIN, "deterministic=true", "--episodes", "112", "--name", "x", "--gpu")
    with_local_paths = tmp_path / "with_local_paths"
    with_local_paths.mkdir()
    code, _, err = ended(start(with_local_paths, *words, "none"))
    assert (code, err) == (0, "")
    shutil.rmtree(own_home / "agents")
    process = start(tmp_path, *words, machine.gpu)
    for count in (1, 2):
        wait_for_steps(tmp_path, count, process)
        assert machine.drop_connections()
    wait_for_steps(tmp_path, 3, process)
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
    require_whole(run)
    agent, local = TrainedAgent.load("x@1"), with_local_paths / "runs" / "x"
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
    assert len(shown["steps"]) == len(run.metrics())
    both = [json.loads(agentgym("doctor", "x", "--json").out)["ledger"]]
    both.append(json.loads(agentgym("doctor", str(local), "--json").out)["ledger"])
    assert both[0] == both[1]


def test_a_client_that_is_gone_follows_again(tmp_path: Path, machine: Machine) -> None:
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
    require_whole(RunFolder(tmp_path / "runs" / "x"))
