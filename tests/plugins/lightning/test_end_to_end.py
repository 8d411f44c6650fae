"""Agent Lightning's trainer on the CPU, in one command; see docs/agent_lightning.md."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from agentgym import TrainedAgent, Trainer
from agentgym.core.ledger import TRAINED
from agentgym.models.nano import nano_path
from agentgym.rollout.record import stored_trajectories
from agentgym.rollout.session import DATABASE_FILE
from agentgym.rollout.store.reader import StoreReader
from tests.plugins.lightning.running import TESTS, config, on_cpu
from tests.plugins.verl.running import tensors
from tests.processes import listening, processes_of

__all__ = ["on_cpu"]

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1200)]


_KILLED = """
import sys
from pathlib import Path
from agentgym import Trainer
from tests.plugins.lightning.running import config
Trainer(config(Path(sys.argv[1]), name="killed")).train()
"""


def test_a_step_of_their_trainer_and_a_resume(
    on_cpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    monkeypatch.setenv("CPU_ROLLOUT_LOG", str(weights))
    first = Trainer(config(tmp_path, name="whole")).train()
    assert first.steps == 1
    assert first.ledger.adds_up
    assert first.ledger.trained > 0
    assert first.ledger.tokens == "all"
    started, updated = weights.read_text().split()
    assert started != updated
    before, one = tensors(nano_path()), tensors(first.artifacts.agent)
    assert before.keys() == one.keys()
    assert any(not torch.equal(before[n].float(), one[n].float()) for n in before)
    assert TrainedAgent.load("whole").metrics == first.metrics
    assert processes_of(on_cpu) == []

    run = tmp_path / "whole"
    [step] = [json.loads(t) for t in (run / "metrics.jsonl").read_text().splitlines()]
    assert step["grad_norm"] > 0
    assert step["trained_tokens"] > 0
    credit = [json.loads(t) for t in (run / "credit.jsonl").read_text().splitlines()]
    assert len(credit) == 16
    made = stored_trajectories(StoreReader(run / DATABASE_FILE))
    rewards = {trajectory.rollout_id: trajectory.reward for trajectory in made}
    for line in credit:
        trained = [c for c in line["calls"] if c["bucket"] == TRAINED.verb]
        counted = line["counted"]
        assert counted["trained_rows"] == counted["rows"] or not trained
        ours = torch.tensor(rewards[line["rollout"]], dtype=torch.bfloat16)
        assert counted["reward"] == pytest.approx(ours.item())

    result = Trainer(config(tmp_path)).train(resume=run, episodes=32)
    assert result.steps == 2
    two = tensors(result.artifacts.agent)
    assert any(not torch.equal(one[name], two[name]) for name in one)
    again = weights.read_text().split()[2:]
    assert again[0] == updated  # it starts with the weights of the first step
    assert again[-1] != updated
    assert processes_of(on_cpu) == []


def test_nothing_is_left_of_a_run_that_was_killed(on_cpu: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(TESTS.parent), os.environ["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 400
    log = tmp_path / "killed" / "lightning.log"
    until = time.monotonic() + 400
    try:
        while "Training Progress" not in _text(log):  # its first step begins
            assert process.poll() is None, _text(log)
            assert time.monotonic() < until
            time.sleep(0.5)
        addresses = listening(on_cpu)
        assert len(addresses) > 2
        open_to_all = [address for address in addresses if address != "127.0.0.1"]
        assert len(open_to_all) <= 1, "torch's store, which cannot be told otherwise"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert processes_of(on_cpu) == []


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
