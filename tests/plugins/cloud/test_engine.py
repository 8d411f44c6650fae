"""Training with vLLM on a machine over SSH, the real one and one that tests play.

They start processes of their own: the command here, and the training over a real SSH
server. The program's environment stands where `agentgym engine install` puts it.
"""

from pathlib import Path

import pytest

from agentgym.train.run_folder import RunFolder
from agentgym.train.trained_agent import TrainedAgent
from tests.plugins.cloud.home import TRAIN, ended, require_whole, start
from tests.plugins.cloud.sshd import Machine
from tests.plugins.vllm.conftest import make_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VLLM = ("--engine", "vllm", "--set", "lora_rank=8", "--episodes", "32", "--name", "x")


def test_vllm_samples_on_the_other_machine(tmp_path: Path, machine: Machine) -> None:
    make_environment(machine.home / ".agentgym", "0.32.0+cpu")
    seen = machine.folder / "seen.jsonl"
    machine.environment |= {
        "FAKE_VLLM": str(machine.folder / "script.json"),
        "FAKE_VLLM_SEEN": str(seen),
    }
    machine.stop_listening()
    machine.start()
    code, out, err = ended(start(tmp_path, *TRAIN, *VLLM, "--gpu", machine.gpu))
    assert code == 0, err
    assert "vLLM starts" in out
    run = RunFolder(tmp_path / "runs" / "x")
    require_whole(run)
    assert '"name": "agentgym-v2"' in seen.read_text()
    assert TrainedAgent.load("x@1").verified_model().is_dir()


def test_an_engine_that_cannot_be_installed_is_named(
    tmp_path: Path, machine: Machine
) -> None:
    machine.shim("uv", "echo 'error: dns error' >&2; exit 2\n", there=True)
    machine.stop_listening()
    machine.start()
    code, out, err = ended(start(tmp_path, *TRAIN, *VLLM, "--gpu", machine.gpu))
    assert code == 1
    assert "Installing vllm on the machine" in out
    assert "vllm could not be installed on the machine" in err
    assert "dns error" in err
    assert "--engine local" in err
    assert not (tmp_path / "runs" / "x").exists()
