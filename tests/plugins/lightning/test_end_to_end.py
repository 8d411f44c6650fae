"""Agent Lightning's trainer on the CPU, in one command; see docs/agent_lightning.md."""

import json
from pathlib import Path

import pytest
import torch

from agentgym import TrainedAgent, Trainer
from agentgym.core.ledger import TRAINED
from agentgym.models.nano import nano_path
from agentgym.rollout.record import stored_trajectories
from agentgym.rollout.session import DATABASE_FILE
from agentgym.rollout.store.reader import StoreReader
from tests.plugins.lightning.running import config, on_cpu
from tests.plugins.verl.running import tensors
from tests.processes import processes_of

__all__ = ["on_cpu"]

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1200)]


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
